#include "qft/ops/dora.h"

#include "linear_support.h"
#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/matmul.h>

namespace qft::ops {
namespace {

using namespace testing;

struct DoraGroup {
  std::int64_t tokens, inputs, rank;
  std::vector<std::int64_t> rows;
  std::vector<bool> adapted;
  bool bias;
};

/// Inputs: x, [bias], and each part's a, b, magnitude. Magnitudes differ from the norms, so that no factor is 1.
LinearCase make(const DoraGroup& group, at::ScalarType dtype, at::ScalarType grad_dtype) {
  LinearCase c;
  std::int64_t total = 0, row0 = 0;
  for (const std::int64_t rows : group.rows) total += rows;
  c.w.weight = randn({total, group.inputs}, dtype, 1, 0.1);
  c.inputs = {randn({group.tokens, group.inputs}, dtype, 2)};
  if (group.bias) c.inputs.push_back(c.w.bias = randn({total}, dtype, 3));
  for (std::size_t i = 0; i < group.rows.size(); ++i) {
    const std::int64_t rows = group.rows[i];
    if (group.adapted[i]) {
      LoraPart part{randn({group.rank, group.inputs}, dtype, 20 + i, 0.1),
                    randn({rows, group.rank}, dtype, 10 + i, 0.3),
                    row0,
                    rows,
                    1.5 + 0.5 * static_cast<double>(i),
                    static_cast<std::uint32_t>(i)};
      const at::Tensor magnitude = randn({rows}, dtype, 30 + i, 0.3) + 1.0;
      part.norm = empty({rows}, statistics_dtype(dtype));
      dora_norms(c.w.weight.narrow(0, row0, rows), part.a, part.b, part.scaling, part.norm);
      part.factor = magnitude.to(part.norm.scalar_type()) / part.norm;
      c.w.lora.push_back(part);
      c.grads.lora.push_back({zeros(part.a.sizes(), grad_dtype), zeros(part.b.sizes(), grad_dtype), zeros({rows}, grad_dtype)});
      c.inputs.insert(c.inputs.end(), {part.a, part.b, magnitude});
    }
    row0 += rows;
  }
  return c;
}

/// PEFT's DoraLinearVariant.forward, one projection at a time, with the norms of `w` as constants.
at::Tensor plain_dora(const std::vector<at::Tensor>& in, const LinearWeights& w, bool drops, const Drop& drop) {
  const at::Tensor weight = w.weight.to(at::kDouble);
  at::Tensor y = at::matmul(in[0], weight.t());
  if (w.bias.defined()) y = y + in[1];
  std::size_t next = w.bias.defined() ? 2 : 1;
  for (const LoraPart& part : w.lora) {
    const at::Tensor x = drop(in[0], part.site), own = weight.narrow(0, part.row0, part.rows);
    const at::Tensor scale = in[next + 2] / part.norm.to(at::kDouble);
    const at::Tensor lora = at::matmul(at::matmul(x, in[next].t()), in[next + 1].t()) * part.scaling;
    const at::Tensor base = at::matmul(drops ? x : in[0], own.t());
    const std::int64_t end = part.row0 + part.rows, total = y.size(1);
    y = at::cat({y.narrow(1, 0, part.row0), y.narrow(1, part.row0, part.rows) + (scale - 1.0) * base + scale * lora,
                 y.narrow(1, end, total - end)},
                1);
    next += 3;
  }
  return y;
}

void compare(const DoraGroup& group, at::ScalarType dtype, at::ScalarType grad_dtype, double p) {
  const LinearCase c = make(group, dtype, grad_dtype);
  const double limit = dtype == at::kBFloat16 ? 2e-2 : tolerance(dtype);
  const Oracle oracle = compare_linear(
      c, p, limit, [&](const std::vector<at::Tensor>& in, const Drop& drop) { return plain_dora(in, c.w, p > 0, drop); });
  std::size_t next = group.bias ? 2 : 1;
  for (const LinearGrads::Lora& lora : c.grads.lora) {
    expect_close(lora.a, 2 * oracle.grads[next++], limit, "ga");
    expect_close(lora.b, 2 * oracle.grads[next++], limit, "gb");
    expect_close(lora.magnitude, 2 * oracle.grads[next++], limit, "gmagnitude");
  }
}

const std::vector<DoraGroup>& dora_groups() {
  static const std::vector<DoraGroup> all = {
      {13, 48, 4, {40, 16, 16}, {true, true, true}, false},
      {7, 33, 5, {20, 10, 11}, {true, false, true}, true},
      {1, 64, 8, {32}, {true}, true},
      {9, 32, 6, {12, 24}, {false, true}, true},
      {150, 1100, 6, {40, 50, 70}, {true, false, true}, true},
      {150, 1100, 6, {40, 50, 71}, {true, true, true}, true},
  };
  return all;
}

TEST(Dora, AgreesWithAutograd) {
  for (const at::ScalarType dtype : kDtypes)
    for (const DoraGroup& group : dora_groups()) compare(group, dtype, dtype == at::kBFloat16 ? at::kFloat : dtype, 0.0);
}

TEST(Dora, DropsTheInputOfBaseAndFactorsAsPeftDoes) {
  for (const at::ScalarType dtype : kDtypes)
    for (const DoraGroup& group : dora_groups()) compare(group, dtype, dtype == at::kBFloat16 ? at::kFloat : dtype, 0.25);
}

TEST(Dora, NormsMatchTheFullMatrix) {
  for (const at::ScalarType dtype : {at::kDouble, at::kFloat, at::kBFloat16, at::kHalf}) {
    const at::Tensor weight = randn({37, 83}, dtype, 1, 0.1), a = randn({5, 83}, dtype, 2, 0.1), b = randn({37, 5}, dtype, 3);
    const at::Tensor norms = empty({37}, statistics_dtype(dtype));
    dora_norms(weight, a, b, 1.5, norms);
    const auto wide = [](const at::Tensor& t) { return t.to(at::kDouble); };
    const at::Tensor whole = wide(weight) + 1.5 * at::matmul(wide(b), wide(a));
    const at::Tensor exact = at::linalg_vector_norm(whole, 2, at::IntArrayRef{1});
    expect_close(norms, exact, dtype == at::kDouble ? 1e-14 : 1e-6, "norms");
  }
}

TEST(Dora, FactorsAreOneIfMagnitudesEqualNorms) {
  for (const at::ScalarType dtype : {at::kDouble, at::kFloat, at::kBFloat16, at::kHalf}) {
    const at::Tensor norms = randn({50}, statistics_dtype(dtype), 1).abs().add_(0.1), factors = at::empty_like(norms);
    norms.narrow(0, 7, 1).fill_(kDoraMinNorm);  // not representable in fp16
    dora_factors(norms.to(dtype), norms, factors);
    EXPECT_TRUE(factors.narrow(0, 0, 7).eq(1).all().item<bool>() && factors.narrow(0, 8, 42).eq(1).all().item<bool>()) << dtype;
    EXPECT_EQ(factors[7].item<double>(), dtype == at::kHalf ? 0.0 : 1.0);
    dora_factors(norms.to(dtype) * 2.0, norms, factors);
    EXPECT_EQ(factors[0].item<double>(), 2.0);
  }
}

TEST(Dora, ARowOfZerosGivesNoNan) {
  for (const at::ScalarType dtype : kDtypes)
    for (const double p : {0.0, 0.5}) {
      const at::Tensor weight = randn({6, 16}, dtype, 1), a = randn({2, 16}, dtype, 2), b = randn({6, 2}, dtype, 3);
      weight.narrow(0, 2, 1).zero_();
      b.narrow(0, 2, 1).zero_();
      LoraPart part{a, b, 0, 6, 2.0, 0};
      part.norm = empty({6}, statistics_dtype(dtype));
      dora_norms(weight, a, b, 2.0, part.norm);
      part.factor = at::empty_like(part.norm);
      dora_factors(part.norm.to(dtype), part.norm, part.factor);  // the initial magnitudes of a run
      const LinearWeights w{weight, {}, {part}};
      const at::Tensor x = randn({3, 16}, dtype, 4), y = empty({3, 6}, dtype), saved = empty({3, lora_saved_columns(w)}, dtype);
      const LoraDropout dropout{p, {1, 2, 3, 0}, {int32s({0, 0, 0}).to(at::kLong), int32s({0, 1, 2})}};
      linear_forward(x, w, dropout, y, saved, workspace());
      LinearGrads grads;
      grads.lora.push_back({zeros(a.sizes(), dtype), zeros(b.sizes(), dtype), zeros({6}, dtype)});
      const at::Tensor gx = empty(x.sizes(), dtype);
      linear_backward({.gy = randn({3, 6}, dtype, 5), .x = x, .saved = saved, .gx = gx}, w, dropout, grads, workspace());
      for (const at::Tensor& t : {y, gx, grads.lora[0].a, grads.lora[0].b, grads.lora[0].magnitude})
        EXPECT_TRUE(t.isfinite().all().item<bool>()) << dtype << " p " << p;
      EXPECT_EQ(y.select(1, 2).abs().max().item<double>(), 0.0);
    }
}

}  // namespace
}  // namespace qft::ops
