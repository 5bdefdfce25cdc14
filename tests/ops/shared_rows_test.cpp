#include "qft/ops/shared_rows.h"

#include "qft/core/error.h"
#include "qft/ops/attention.h"
#include "qft/ops/gated_delta.h"
#include "qft/ops/short_convolution.h"

#include <algorithm>
#include <functional>

#include "ops_support.h"
#include <ATen/TensorOperators.h>
#include <ATen/ops/index_add.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/zeros.h>

namespace qft::ops {
namespace {

using namespace testing;

/// Two pairs, a separate sequence, and a pair without common rows.
const std::vector<std::int32_t> kSharedBounds = {0, 9, 20, 24, 26, 33, 40, 45}, kShared = {0, 7, 0, 1, 0, 0, 0};

TEST(SharedRows, ComeFromThePreviousSequence) {
  const SharedRows shared = SharedRows::build(kSharedBounds, kShared);
  EXPECT_EQ(shared.tokens, 45);
  EXPECT_EQ(shared.rows, 37);
  std::vector<std::int64_t> rows;
  for (std::int64_t t = 0; t < 45; ++t) rows.push_back(shared.row_of(t));
  std::vector<std::int64_t> want;
  std::int64_t next = 0;
  for (std::size_t s = 0; s < kShared.size(); ++s) {
    const auto before = s == 0 ? 0 : static_cast<std::size_t>(kSharedBounds[s - 1]);
    for (std::int32_t t = 0; t < kSharedBounds[s + 1] - kSharedBounds[s]; ++t)
      want.push_back(t < kShared[s] ? want[before + static_cast<std::size_t>(t)] : next++);
  }
  EXPECT_EQ(rows, want);
  EXPECT_EQ(PackedSequences::build(kSharedBounds, at::kCPU, kShared).num_rows(), 37);
}

TEST(SharedRows, AreEmptyIfNothingIsShared) {
  for (const std::vector<std::int32_t>& none : {std::vector<std::int32_t>{}, std::vector<std::int32_t>(7, 0)}) {
    const PackedSequences packed = PackedSequences::build(kSharedBounds, at::kCPU, none);
    EXPECT_FALSE(packed.shared.any());
    EXPECT_EQ(packed.num_rows(), 45);
    EXPECT_EQ(packed.shared.row_of(44), 44);
  }
}

TEST(SharedRows, RejectMoreTokensThanASequenceHas) {
  const auto build = [](std::vector<std::int32_t> bounds, std::vector<std::int32_t> shared) {
    return SharedRows::build(bounds, shared);
  };
  EXPECT_THROW(build({0, 5, 9}, {1, 0}), Error);               // no sequence precedes it
  EXPECT_THROW(build({0, 5, 9}, {0, 5}), Error);               // longer than its predecessor
  EXPECT_THROW(build({0, 2, 9}, {0, 3}), Error);               // its predecessor is shorter
  EXPECT_THROW(build({0, 5, 9, 14}, {0, 3, 2}), Error);        // three sequences share
  EXPECT_THROW(build({0, 5, 9}, {0, 3, 0}), Error);            // one count too many
  EXPECT_EQ(build({0, 5, 9, 14, 18}, {0, 4, 0, 4}).rows, 10);  // shares a whole sequence
}

/// Reference: rows expanded by an index.
struct ExpandedReference {
  SharedRows shared;
  at::Tensor index, again;  ///< int64 [tokens] and bool

  explicit ExpandedReference(const PackedSequences& packed) : shared(packed.shared) {
    std::vector<std::int64_t> rows;
    for (std::int64_t t = 0; t < shared.tokens; ++t) rows.push_back(shared.row_of(t));
    index = at::empty({shared.tokens}, at::kLong);
    again = at::zeros({shared.tokens}, at::kBool);
    std::vector<std::int64_t> seen;
    for (std::size_t t = 0; t < rows.size(); ++t) {
      index[static_cast<std::int64_t>(t)] = rows[t];
      if (std::ranges::find(seen, rows[t]) != seen.end()) again[static_cast<std::int64_t>(t)] = true;
      seen.push_back(rows[t]);
    }
  }
  at::Tensor expand(const at::Tensor& x) const { return at::index_select(x, 0, index); }
  at::Tensor gradient(const at::Tensor& g) const {
    const at::Tensor all = expand(g);
    all.index_put_({again}, at::zeros({1}, g.options()));
    return all;
  }
  at::Tensor sum(const at::Tensor& x) const {
    std::vector<std::int64_t> sizes = x.sizes().vec();
    sizes[0] = shared.rows;
    return at::index_add(at::zeros(sizes, x.options().dtype(at::kDouble)), 0, index, x.to(at::kDouble));
  }
};

TEST(SharedRows, AttentionMatchesSeparateRows) {
  const PackedSequences packed = PackedSequences::build(kSharedBounds, at::kCPU, kShared),
                        whole = PackedSequences::build(kSharedBounds, at::kCPU);
  const ExpandedReference expanded(packed);
  const std::int64_t heads = 4, kv_heads = 2, dim = 16, columns = (heads + 2 * kv_heads) * dim;
  for (const at::ScalarType dtype : kDtypes)
    for (const std::int64_t window : {0, 3}) {
      const at::Tensor qkv = randn({37, columns}, dtype, 1), gout = randn({37, heads * dim}, dtype, 2);
      const AttentionOptions options{0.25, window};
      const auto views = [&](const at::Tensor& rows) { return split_qkv(rows, heads, kv_heads, dim); };
      const at::Tensor out = empty(gout.sizes(), dtype), lse = empty({heads, 37}, statistics_dtype(dtype)),
                       grads = empty(qkv.sizes(), dtype);
      attention_forward(views(qkv), packed, options, out, lse, workspace());
      attention_backward({.gout = gout, .in = views(qkv), .out = out, .lse = lse, .grads = views(grads)}, packed, options,
                         workspace());

      const at::Tensor all = expanded.expand(qkv), all_out = empty({45, heads * dim}, dtype),
                       all_lse = empty({heads, 45}, statistics_dtype(dtype)), all_grads = empty({45, columns}, dtype);
      attention_forward(views(all), whole, options, all_out, all_lse, workspace());
      attention_backward(
          {.gout = expanded.gradient(gout), .in = views(all), .out = all_out, .lse = all_lse, .grads = views(all_grads)}, whole,
          options, workspace());
      const double limit = dtype == at::kBFloat16 ? kOneRounding : dtype == at::kFloat ? 1e-6 : 1e-14;
      expect_close(expanded.expand(out), all_out, limit, "out");
      expect_close(at::index_select(lse, 1, expanded.index), all_lse, 1e-6, "lse");
      expect_close(grads, expanded.sum(all_grads), limit, "gradients");
    }
}

/// Forward keeps no states for sequences with shared rows, even long ones; backward must recompute them.
TEST(SharedRows, DeltaRuleMatchesSeparateRows) {
  const std::vector<std::int32_t> bounds = {0, 1100, 2150}, shared = {0, 1040};
  const PackedSequences packed = PackedSequences::build(bounds, at::kCPU, shared),
                        whole = PackedSequences::build(bounds, at::kCPU);
  const ExpandedReference expanded(packed);
  const std::int64_t rows = packed.num_rows(), keys = 1, values = 2, dim = 8;
  EXPECT_EQ(kept_delta_states(packed), 0);
  for (const at::ScalarType dtype : {at::kDouble, at::kFloat}) {
    const at::ScalarType wide = statistics_dtype(dtype);
    const GatedDeltaTensors in = {randn({rows, keys, dim}, dtype, 1), randn({rows, keys, dim}, dtype, 2),
                                  randn({rows, values, dim}, dtype, 3), randn({rows, values}, wide, 4, 0.1).abs().neg(),
                                  randn({rows, values}, wide, 5).sigmoid()};
    const auto like = [](const GatedDeltaTensors& t) -> GatedDeltaTensors {
      return {at::zeros_like(t.q), at::zeros_like(t.k), at::zeros_like(t.v), at::zeros_like(t.g), at::zeros_like(t.beta)};
    };
    const GatedDeltaTensors all = {expanded.expand(in.q), expanded.expand(in.k), expanded.expand(in.v), expanded.expand(in.g),
                                   expanded.expand(in.beta)};
    const at::Tensor gout = randn(in.v.sizes(), dtype, 6), out = empty(in.v.sizes(), dtype),
                     none = empty({0, values, dim, dim}, wide);
    const GatedDeltaTensors grads = like(in), all_grads = like(all);
    gated_delta_forward(in, packed, out, none, workspace());
    gated_delta_backward(gout, in, none, packed, grads, workspace());
    const at::Tensor all_out = empty(all.v.sizes(), dtype), states = empty({kept_delta_states(whole), values, dim, dim}, wide);
    gated_delta_forward(all, whole, all_out, states, workspace());
    gated_delta_backward(expanded.gradient(gout), all, states, whole, all_grads, workspace());
    const double limit = dtype == at::kFloat ? 1e-5 : 1e-13;
    expect_close(expanded.expand(out), all_out, limit, "out");
    expect_close(grads.q, expanded.sum(all_grads.q), limit, "gq");
    expect_close(grads.k, expanded.sum(all_grads.k), limit, "gk");
    expect_close(grads.v, expanded.sum(all_grads.v), limit, "gv");
    expect_close(grads.g, expanded.sum(all_grads.g), limit, "gg");
    expect_close(grads.beta, expanded.sum(all_grads.beta), limit, "gbeta");
  }
}

TEST(SharedRows, ConvolutionMatchesSeparateRows) {
  const PackedSequences packed = PackedSequences::build(kSharedBounds, at::kCPU, kShared),
                        whole = PackedSequences::build(kSharedBounds, at::kCPU);
  const ExpandedReference expanded(packed);
  for (const at::ScalarType dtype : kDtypes) {
    const at::Tensor x = randn({37, 12}, dtype, 1), weight = randn({12, 4}, dtype, 2), gy = randn({37, 12}, dtype, 3);
    const at::Tensor y = empty(x.sizes(), dtype), gx = empty(x.sizes(), dtype), gweight = zeros({12, 4}, dtype);
    short_convolution_forward(x, weight, packed, y, workspace());
    short_convolution_backward(gy, x, weight, packed, gx, gweight, workspace());
    const at::Tensor all = expanded.expand(x), all_y = empty(all.sizes(), dtype), all_gx = empty(all.sizes(), dtype),
                     all_gweight = zeros({12, 4}, dtype);
    short_convolution_forward(all, weight, whole, all_y, workspace());
    short_convolution_backward(expanded.gradient(gy), all, weight, whole, all_gx, all_gweight, workspace());
    const double limit = dtype == at::kBFloat16 ? kOneRounding : dtype == at::kFloat ? 1e-6 : 1e-14;
    expect_close(expanded.expand(y), all_y, limit, "y");
    expect_close(gx, expanded.sum(all_gx), limit, "gx");
    expect_close(gweight, all_gweight, limit, "gweight");
  }
}

}  // namespace
}  // namespace qft::ops
