#include "qft/ops/attention.h"

#include "qft/core/error.h"

#include <cmath>
#include <functional>
#include <string>

#include "ops/attention/attention_blocked_cpu.h"
#include "ops_support.h"
#include "support/gpu.h"
#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/softmax.h>

namespace qft::ops {
namespace {

using namespace testing;

struct Shape {
  std::int64_t heads, kv_heads, head_dim;
  std::vector<std::int32_t> lengths;
  std::int64_t window = 0;
};

std::vector<std::int32_t> boundaries(const Shape& shape) {
  std::vector<std::int32_t> out = {0};
  for (const std::int32_t n : shape.lengths) out.push_back(out.back() + n);
  return out;
}

/// Straightforward attention per sequence and head, on qkv rows in fp64.
at::Tensor plain_attention(const at::Tensor& qkv, const Shape& shape, double scale) {
  const std::int64_t hd = shape.head_dim, group = shape.heads / shape.kv_heads;
  std::vector<at::Tensor> sequences;
  std::int64_t first = 0;
  for (const std::int64_t n : shape.lengths) {
    if (n == 0) continue;
    const at::Tensor rows = qkv.narrow(0, first, n), all = at::ones({n, n}, at::kBool);
    const at::Tensor hidden = shape.window > 0 ? all.triu(1).logical_or(all.tril(-shape.window)) : all.triu(1);
    std::vector<at::Tensor> heads;
    for (std::int64_t h = 0; h < shape.heads; ++h) {
      const at::Tensor q = rows.narrow(1, h * hd, hd), k = rows.narrow(1, (shape.heads + h / group) * hd, hd);
      const at::Tensor v = rows.narrow(1, (shape.heads + shape.kv_heads + h / group) * hd, hd);
      const at::Tensor scores = (at::matmul(q, k.t()) * scale).masked_fill(hidden, -INFINITY);
      heads.push_back(at::matmul(at::softmax(scores, -1), v));
    }
    sequences.push_back(at::cat(heads, 1));
    first += n;
  }
  return at::cat(sequences, 0);
}

using Forward = std::function<void(const QkvViews&, const PackedSequences&, const AttentionOptions&, const at::Tensor& out,
                                   const at::Tensor& lse)>;
using Backward = std::function<void(const at::Tensor& gout, const QkvViews&, const at::Tensor& out, const at::Tensor& lse,
                                    const PackedSequences&, const AttentionOptions&, const QkvViews& grads)>;

void compare(const Shape& shape, at::ScalarType dtype, const Forward& forward, const Backward& backward) {
  const PackedSequences packed = PackedSequences::build(boundaries(shape), at::kCPU);
  const std::int64_t tokens = packed.num_tokens(), columns = (shape.heads + 2 * shape.kv_heads) * shape.head_dim;
  const double scale = 1.0 / std::sqrt(static_cast<double>(shape.head_dim));
  const AttentionOptions options{scale, shape.window};
  const at::Tensor qkv = randn({tokens, columns}, dtype, 1, 1.5);
  const at::Tensor gout = randn({tokens, shape.heads * shape.head_dim}, dtype, 2);
  const Oracle oracle =
      differentiate([&](const std::vector<at::Tensor>& in) { return plain_attention(in[0], shape, scale); }, {qkv}, gout);
  const QkvViews in = split_qkv(qkv, shape.heads, shape.kv_heads, shape.head_dim);
  const at::Tensor out = empty(gout.sizes(), dtype), lse = empty({shape.heads, tokens}, statistics_dtype(dtype));
  forward(in, packed, options, out, lse);
  // In bf16 the probabilities are also rounded before they multiply the values.
  const double limit = dtype == at::kBFloat16 ? 1e-2 : tolerance(dtype);
  expect_close(out, oracle.value, limit, "out");

  const at::Tensor gqkv = empty(qkv.sizes(), dtype);
  backward(gout, in, out, lse, packed, options, split_qkv(gqkv, shape.heads, shape.kv_heads, shape.head_dim));
  const QkvViews expected = split_qkv(oracle.grads[0], shape.heads, shape.kv_heads, shape.head_dim);
  const QkvViews actual = split_qkv(gqkv, shape.heads, shape.kv_heads, shape.head_dim);
  // A query that sees only itself has a zero gradient; short sequences would leave only rounding errors to compare.
  const double absolute = 1e-3 * oracle.grads[0].norm().item<double>();
  if (expected.q.norm().item<double>() > absolute) {
    expect_close(actual.q, expected.q, 2 * limit, "gq");
    expect_close(actual.k, expected.k, 2 * limit, "gk");
  }
  expect_close(actual.v, expected.v, limit, "gv");
  expect_close(gqkv, oracle.grads[0], 2 * limit, "gqkv");
}

const std::vector<Shape>& shapes() {
  // The last shapes have windows: shorter than the sequences, equal, longer, and across tile and block borders.
  static const std::vector<Shape> all = {
      {9, 3, 64, {1}},
      {9, 3, 64, {64}},
      {9, 3, 64, {65, 1, 130, 3}},
      {4, 1, 128, {33, 70}},
      {2, 2, 80, {17, 100}},
      {4, 2, 96, {5, 0, 9}},
      {3, 1, 24, {2, 300}},
      {1, 1, 8, {700}},
      {2, 1, 64, {513, 40}},
      {6, 2, 40, {1, 1, 1}},
      {2, 1, 256, {19, 90}},
      {2, 1, 18, {33}},
      {4, 2, 24, {200, 7}, 1},
      {6, 2, 40, {90, 30}, 64},
      {9, 3, 64, {65, 1, 130, 3}, 65},
      {2, 1, 64, {700, 40}, 100},
      {2, 1, 18, {33, 300}, 130},
      {1, 1, 8, {1100}, 513},
      {3, 1, 16, {20, 0, 9}, 1000},
  };
  return all;
}

class Attention : public ::testing::TestWithParam<AttentionKernel> {};

TEST_P(Attention, AgreesWithAutograd) {
  for (const at::ScalarType dtype : kDtypes) {
    if (GetParam() == AttentionKernel::blocked && dtype == at::kDouble) continue;
    for (const Shape& shape : shapes()) {
      SCOPED_TRACE(std::to_string(shape.heads) + "/" + std::to_string(shape.kv_heads) + " heads of " +
                   std::to_string(shape.head_dim) + ", window " + std::to_string(shape.window));
      compare(
          shape, dtype,
          [](const QkvViews& in, const PackedSequences& packed, const AttentionOptions& options, const at::Tensor& out,
             const at::Tensor& lse) { attention_forward(in, packed, options, out, lse, workspace(), GetParam()); },
          [](const at::Tensor& gout, const QkvViews& in, const at::Tensor& out, const at::Tensor& lse,
             const PackedSequences& packed, const AttentionOptions& options, const QkvViews& grads) {
            attention_backward({.gout = gout, .in = in, .out = out, .lse = lse, .grads = grads}, packed, options, workspace(),
                               GetParam());
          });
    }
  }
}

struct BlockedAttention : EachTileType {};
INSTANTIATE_TEST_SUITE_P(AllBlocks, BlockedAttention, kAllTileTypes);

TEST_P(BlockedAttention, AgreesWithAutograd) {
  for (const Shape& shape : shapes()) {
    compare(
        shape, at::kBFloat16,
        [](const QkvViews& in, const PackedSequences& packed, const AttentionOptions& options, const at::Tensor& out,
           const at::Tensor& lse) { blocked::attention_forward(in, packed, options, out, lse, workspace(), GetParam()); },
        [](const at::Tensor& gout, const QkvViews& in, const at::Tensor& out, const at::Tensor& lse,
           const PackedSequences& packed, const AttentionOptions& options, const QkvViews& grads) {
          blocked::attention_backward({.gout = gout, .in = in, .out = out, .lse = lse, .grads = grads}, packed, options,
                                      workspace(), GetParam());
        });
  }
}

TEST_P(BlockedAttention, IgnoresAWindowThatNoSequenceExceeds) {
  const Shape shape{4, 2, 24, {70, 600}};
  const PackedSequences packed = PackedSequences::build(boundaries(shape), at::kCPU);
  const at::Tensor qkv = randn({670, 8 * 24}, at::kBFloat16, 1), gout = randn({670, 4 * 24}, at::kBFloat16, 2);
  const QkvViews in = split_qkv(qkv, 4, 2, 24);
  std::vector<at::Tensor> all[2];
  for (const std::int64_t window : {0, 600}) {
    const at::Tensor out = empty(gout.sizes(), at::kBFloat16), lse = empty({4, 670}, at::kFloat),
                     grads = empty(qkv.sizes(), at::kBFloat16);
    blocked::attention_forward(in, packed, {0.2, window}, out, lse, workspace(), GetParam());
    blocked::attention_backward({.gout = gout, .in = in, .out = out, .lse = lse, .grads = split_qkv(grads, 4, 2, 24)}, packed,
                                {0.2, window}, workspace(), GetParam());
    all[window > 0] = {out, lse, grads};
  }
  for (std::size_t i = 0; i < 3; ++i) EXPECT_TRUE(at::equal(all[0][i], all[1][i])) << i;
}

TEST(AttentionKernels, ArePlainAtenOnADeviceWithoutKernels) {
  const auto options = at::TensorOptions().dtype(at::kFloat);
  EXPECT_EQ(default_attention_kernel(at::empty({4, 2, 8}, options.device(at::kMeta))), AttentionKernel::reference);
  EXPECT_NE(default_attention_kernel(at::empty({4, 2, 8}, options)), AttentionKernel::reference);
}

// Covers flash attention (bf16) and the memory-efficient kernel (fp32).
TEST(AttentionOnGpu, AgreesWithAutograd) {
  if (!test::has_gpu()) GTEST_SKIP() << "no GPU";
  const c10::Device gpu(at::kCUDA, 0);
  Workspace scratch(gpu);
  const auto there = [&](const QkvViews& v) { return QkvViews{v.q.to(gpu), v.k.to(gpu), v.v.to(gpu)}; };
  const auto packed_there = [&](const PackedSequences& packed) { return PackedSequences::build(packed.cu_seqlens, gpu); };
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
    for (const Shape& shape : shapes()) {
      SCOPED_TRACE(std::to_string(shape.head_dim) + ", window " + std::to_string(shape.window));
      compare(
          shape, dtype,
          [&](const QkvViews& in, const PackedSequences& packed, const AttentionOptions& options, const at::Tensor& out,
              const at::Tensor& lse) {
            const at::Tensor gpu_out = out.to(gpu), gpu_lse = lse.to(gpu);
            attention_forward(there(in), packed_there(packed), options, gpu_out, gpu_lse, scratch);
            out.copy_(gpu_out);
            lse.copy_(gpu_lse);
          },
          [&](const at::Tensor& gout, const QkvViews& in, const at::Tensor& out, const at::Tensor& lse,
              const PackedSequences& packed, const AttentionOptions& options, const QkvViews& grads) {
            const QkvViews gpu_grads = there(grads);
            attention_backward(
                {.gout = gout.to(gpu), .in = there(in), .out = out.to(gpu), .lse = lse.to(gpu), .grads = gpu_grads},
                packed_there(packed), options, scratch);
            grads.q.copy_(gpu_grads.q);
            grads.k.copy_(gpu_grads.k);
            grads.v.copy_(gpu_grads.v);
          });
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Kernels, Attention,
                         ::testing::Values(AttentionKernel::reference, AttentionKernel::sdpa, AttentionKernel::blocked));

TEST(AttentionLse, IsTheLogOfTheSoftmaxDenominator) {
  const Shape shape{4, 2, 64, {70, 12}};
  const PackedSequences packed = PackedSequences::build(boundaries(shape), at::kCPU);
  for (const at::ScalarType dtype : kDtypes) {
    const at::Tensor qkv = randn({82, 8 * 64}, dtype, 1), out = empty({82, 256}, dtype);
    const at::Tensor expected = empty({4, 82}, statistics_dtype(dtype)), lse = empty({4, 82}, statistics_dtype(dtype));
    const QkvViews in = split_qkv(qkv, 4, 2, 64);
    attention_forward(in, packed, {0.125}, out, expected, workspace(), AttentionKernel::reference);
    attention_forward(in, packed, {0.125}, out, lse, workspace());
    expect_close(lse, expected, 1e-5, "lse");
  }
}

TEST_P(Attention, PassesNanOnWithinItsSequenceOnly) {
  const PackedSequences packed = PackedSequences::build(std::vector<std::int32_t>{0, 70, 140}, at::kCPU);
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
    const at::Tensor qkv = randn({140, 3 * 16}, dtype, 1), out = empty({140, 16}, dtype), grad = empty(qkv.sizes(), dtype);
    qkv[69][0].fill_(std::numeric_limits<double>::quiet_NaN());  // the last query of the first sequence
    const QkvViews in = split_qkv(qkv, 1, 1, 16);
    const at::Tensor lse = empty({1, 140}, at::kFloat);
    attention_forward(in, packed, {0.25}, out, lse, workspace(), GetParam());
    EXPECT_TRUE(out[69].isnan().all().item<bool>());
    EXPECT_EQ(out.isnan().sum().item<std::int64_t>(), 16);
    attention_backward({.gout = out.clone().fill_(1.0), .in = in, .out = out, .lse = lse, .grads = split_qkv(grad, 1, 1, 16)},
                       packed, {0.25}, workspace(), GetParam());
    EXPECT_TRUE(grad.narrow(0, 0, 70).narrow(1, 32, 16).isnan().any().item<bool>());
    EXPECT_TRUE(grad.narrow(0, 70, 70).isfinite().all().item<bool>());
  }
}

TEST(AttentionScratch, MatchesTheWorkspaceUse) {
  // One token more than whole tiles per sequence: the maximum of padding.
  const Shape shape{6, 2, 32, {65, 129, 193, 65}};
  const PackedSequences packed = PackedSequences::build(boundaries(shape), at::kCPU);
  for (const auto dtype : {at::kFloat, at::kBFloat16}) {
    const at::Tensor qkv = randn({packed.num_tokens(), 10 * shape.head_dim}, dtype, 1),
                     gout = randn({packed.num_tokens(), 6 * shape.head_dim}, dtype, 2);
    if (default_attention_kernel(qkv) != AttentionKernel::blocked) continue;
    const QkvViews in = split_qkv(qkv, 6, 2, shape.head_dim);
    const at::Tensor out = empty(gout.sizes(), dtype), lse = empty({6, packed.num_tokens()}, at::kFloat),
                     grads = empty(qkv.sizes(), dtype);
    const auto predicted = [&](bool backward) {
      return attention_scratch_bytes({.tokens = packed.num_tokens(), .sequences = 4}, 6, 2, shape.head_dim, dtype, backward);
    };
    Workspace workspace(at::kCPU);
    attention_forward(in, packed, {0.2}, out, lse, workspace);
    EXPECT_EQ(predicted(false), workspace.bytes_in_use()) << dtype;
    attention_backward({.gout = gout, .in = in, .out = out, .lse = lse, .grads = split_qkv(grads, 6, 2, shape.head_dim)}, packed,
                       {0.2}, workspace);
    // With several threads, four sequences are split less than the planned single one.
    if (at::get_num_threads() > 1)
      EXPECT_GE(predicted(true), workspace.bytes_in_use()) << dtype;
    else
      EXPECT_EQ(predicted(true), workspace.bytes_in_use()) << dtype;
  }
}

// With fewer sequences over the threads, a pass holds more query gradient sums.
TEST(AttentionScratch, CoversOneSequenceIfPlannedForSeveral) {
  constexpr std::int64_t tokens = 768;
  const int threads = at::get_num_threads();
  for (const int n : {1, 2, 3}) {
    at::set_num_threads(n);
    for (const auto dtype : {at::kFloat, at::kBFloat16}) {
      const at::Tensor qkv = randn({tokens, 10 * 128}, dtype, 1), gout = randn({tokens, 6 * 128}, dtype, 2);
      if (default_attention_kernel(qkv) != AttentionKernel::blocked) continue;
      const std::int64_t planned = attention_scratch_bytes({.tokens = tokens, .sequences = 4}, 6, 2, 128, dtype, true);
      const QkvViews in = split_qkv(qkv, 6, 2, 128);
      const at::Tensor out = empty(gout.sizes(), dtype), lse = empty({6, tokens}, at::kFloat), grads = empty(qkv.sizes(), dtype);
      for (const std::int32_t sequences : {1, 2, 4}) {
        std::vector<std::int32_t> cu_seqlens;
        for (std::int32_t s = 0; s <= sequences; ++s) cu_seqlens.push_back(static_cast<std::int32_t>(tokens) / sequences * s);
        const PackedSequences packed = PackedSequences::build(cu_seqlens, at::kCPU);
        Workspace workspace(at::kCPU);
        attention_forward(in, packed, {0.2}, out, lse, workspace);
        attention_backward({.gout = gout, .in = in, .out = out, .lse = lse, .grads = split_qkv(grads, 6, 2, 128)}, packed, {0.2},
                           workspace);
        EXPECT_LE(workspace.bytes_in_use(), planned)
            << n << " threads, " << tokens << " tokens in " << sequences << " sequences, " << dtype;
      }
    }
  }
  at::set_num_threads(threads);
}

TEST(PackedSequences, RejectsInvalidBoundaries) {
  EXPECT_THROW(PackedSequences::build({}, at::kCPU), Error);
  EXPECT_THROW(PackedSequences::build(std::vector<std::int32_t>{1, 2}, at::kCPU), Error);
  EXPECT_THROW(PackedSequences::build(std::vector<std::int32_t>{0, 5, 4}, at::kCPU), Error);
  EXPECT_EQ(PackedSequences::build(std::vector<std::int32_t>{0, 5, 5, 12}, at::kCPU).max_length, 7);
}

}  // namespace
}  // namespace qft::ops
