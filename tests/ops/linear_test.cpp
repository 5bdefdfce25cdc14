#include "linear_support.h"
#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/matmul.h>

namespace qft::ops {
namespace {

using namespace testing;

struct Group {
  std::int64_t tokens, inputs, rank;
  std::vector<std::int64_t> rows;  ///< per projection
  std::vector<bool> adapted;       ///< projections with LoRA
  bool bias, fused_a;
};

/// Inputs: x, weight, [bias], and each part's a, b.
LinearCase make(const Group& group, at::ScalarType dtype, at::ScalarType grad_dtype) {
  LinearCase c;
  std::int64_t total = 0, parts = 0;
  for (std::size_t i = 0; i < group.rows.size(); ++i) total += group.rows[i], parts += group.adapted[i];
  c.w.weight = randn({total, group.inputs}, dtype, 1, 0.1);
  c.inputs = {randn({group.tokens, group.inputs}, dtype, 2), c.w.weight};
  if (group.bias) c.inputs.push_back(c.w.bias = randn({total}, dtype, 3));
  const at::Tensor flat_a = randn({parts * group.rank, group.inputs}, dtype, 4, 0.1);
  std::int64_t row0 = 0, part = 0;
  for (std::size_t i = 0; i < group.rows.size(); ++i) {
    if (group.adapted[i]) {
      const at::Tensor a = flat_a.narrow(0, part * group.rank, group.rank);
      c.w.lora.push_back({group.fused_a ? a : a.clone(), randn({group.rows[i], group.rank}, dtype, 10 + i, 0.3), row0,
                          group.rows[i], 2.0 - 0.5 * static_cast<double>(part), static_cast<std::uint32_t>(i)});
      c.inputs.push_back(c.w.lora.back().a);
      c.inputs.push_back(c.w.lora.back().b);
      ++part;
    }
    row0 += group.rows[i];
  }
  c.grads.weight = zeros(c.w.weight.sizes(), grad_dtype);
  if (group.bias) c.grads.bias = zeros({total}, grad_dtype);
  for (const LoraPart& p : c.w.lora) c.grads.lora.push_back({zeros(p.a.sizes(), grad_dtype), zeros(p.b.sizes(), grad_dtype)});
  return c;
}

/// Reference: one projection at a time. `drop` maps x to the input of a site's LoRA.
at::Tensor plain_linear(const std::vector<at::Tensor>& in, const LinearWeights& w, bool bias, const Drop& drop) {
  at::Tensor y = at::matmul(in[0], in[1].t());
  if (bias) y = y + in[2];
  std::size_t next = bias ? 3 : 2;
  for (const LoraPart& part : w.lora) {
    const at::Tensor h = at::matmul(drop(in[0], part.site), in[next].t());
    const at::Tensor term = at::matmul(h, in[next + 1].t()) * part.scaling;
    const std::int64_t end = part.row0 + part.rows, total = y.size(1);
    y = at::cat({y.narrow(1, 0, part.row0), y.narrow(1, part.row0, part.rows) + term, y.narrow(1, end, total - end)}, 1);
    next += 2;
  }
  return y;
}

void compare(const Group& group, at::ScalarType dtype, at::ScalarType grad_dtype, double p) {
  const LinearCase c = make(group, dtype, grad_dtype);
  const double limit = dtype == at::kBFloat16 ? 1e-2 : tolerance(dtype);
  const Oracle oracle = compare_linear(
      c, p, limit, [&](const std::vector<at::Tensor>& in, const Drop& drop) { return plain_linear(in, c.w, group.bias, drop); });
  expect_close(c.grads.weight, 2 * oracle.grads[1], limit, "gweight");
  std::size_t next = 2;
  if (group.bias) expect_close(c.grads.bias, 2 * oracle.grads[next++], limit, "gbias");
  for (const LinearGrads::Lora& lora : c.grads.lora) {
    expect_close(lora.a, 2 * oracle.grads[next++], limit, "ga");
    expect_close(lora.b, 2 * oracle.grads[next++], limit, "gb");
  }
}

const std::vector<Group>& groups() {
  static const std::vector<Group> all = {
      {13, 48, 4, {40, 16, 16}, {true, true, true}, false, true},
      {13, 48, 4, {40, 16, 16}, {true, true, true}, true, false},
      {7, 33, 5, {20, 10, 11}, {true, false, true}, true, true},
      {1, 64, 8, {32}, {true}, false, true},
      {9, 32, 64, {48, 24}, {true, true}, false, true},  // rank too large for a block-diagonal B
      {21, 17, 1, {19}, {false}, true, true},
      {150, 1100, 6, {40, 50, 70}, {true, false, true}, true, true},  // several panels and blocks
  };
  return all;
}

TEST(Linear, AgreesWithAutograd) {
  for (const at::ScalarType dtype : kDtypes)
    for (const Group& group : groups()) compare(group, dtype, dtype, 0.0);
}

TEST(Linear, AccumulatesIntoWiderGradients) {
  for (const Group& group : groups()) compare(group, at::kBFloat16, at::kFloat, 0.0);
}

TEST(Linear, DropsInputPerProjection) {
  for (const at::ScalarType dtype : kDtypes)
    for (const Group& group : groups()) compare(group, dtype, dtype, 0.25);
}

TEST(Linear, FrozenParametersNeedNeitherGradientNorInput) {
  const Group group{5, 16, 2, {8, 8}, {true, true}, true, true};
  LinearCase c = make(group, at::kFloat, at::kFloat);
  const at::Tensor gy = randn({5, 16}, at::kFloat, 5), gx = empty({5, 16}, at::kFloat);
  LinearWeights base{c.w.weight, c.w.bias, {}};
  linear_backward({.gy = gy, .gx = gx}, base, {}, {}, workspace());
  expect_close(gx, at::matmul(gy, c.w.weight), 1e-6, "gx");
}

}  // namespace
}  // namespace qft::ops
