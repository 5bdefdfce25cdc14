#include "qft/ops/oft.h"

#include "linear_support.h"
#include <ATen/TensorOperators.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/eye.h>
#include <ATen/ops/linalg_inv.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros_like.h>

namespace qft::ops {
namespace {

using namespace testing;

struct OftGroup {
  std::int64_t tokens, inputs, block;
  bool shared;
  CayleyTerms terms;
  std::vector<std::int64_t> rows;
  std::vector<bool> adapted;
  bool bias;
};

/// Element by element, by the definition.
at::Tensor skew_matrix(const at::Tensor& elements, std::int64_t b) {
  std::vector<at::Tensor> all;
  const at::Tensor none = at::zeros_like(elements.select(0, 0));
  const auto place = [b](std::int64_t i, std::int64_t j) { return i * b - i * (i + 1) / 2 + j - i - 1; };
  for (std::int64_t i = 0; i < b; ++i)
    for (std::int64_t j = 0; j < b; ++j)
      all.push_back(i == j ? none : i < j ? elements.select(0, place(i, j)) : -elements.select(0, place(j, i)));
  return at::stack(all).view({b, b});
}

/// PEFT's _cayley_batch, for one block.
at::Tensor rotation(const at::Tensor& elements, std::int64_t b, CayleyTerms terms) {
  const at::Tensor q = skew_matrix(elements, b), one = at::eye(b, q.options());
  if (terms == kCayleyExact) return at::matmul(one - q, at::linalg_inv(one + q));
  at::Tensor r = one + 2.0 * q, power = at::matmul(q, q);
  if (terms <= 2) return r;
  r = r + 2.0 * power;
  for (int k = 3; k < terms - 1; ++k) {
    power = at::matmul(power, q);
    r = r + 2.0 * power;
  }
  return r + at::matmul(power, q);
}

at::Tensor rotated(const at::Tensor& x, const at::Tensor& skew, const OftGroup& group) {
  std::vector<at::Tensor> columns;
  for (std::int64_t i = 0; i < group.inputs / group.block; ++i) {
    const at::Tensor r = rotation(skew.select(0, group.shared ? 0 : i), group.block, group.terms);
    columns.push_back(at::matmul(x.narrow(1, i * group.block, group.block), r));
  }
  return at::cat(columns, 1);
}

/// Inputs: x, [bias], and each part's skew elements.
LinearCase make(const OftGroup& group, at::ScalarType dtype, at::ScalarType grad_dtype) {
  LinearCase c;
  std::int64_t total = 0, row0 = 0;
  for (const std::int64_t rows : group.rows) total += rows;
  c.w.weight = randn({total, group.inputs}, dtype, 1, 0.1);
  c.inputs = {randn({group.tokens, group.inputs}, dtype, 2)};
  if (group.bias) c.inputs.push_back(c.w.bias = randn({total}, dtype, 3));
  const std::int64_t blocks = group.shared ? 1 : group.inputs / group.block, b = group.block;
  for (std::size_t i = 0; i < group.rows.size(); ++i) {
    if (group.adapted[i]) {
      OftPart part{randn({blocks, b * (b - 1) / 2}, dtype, 20 + i, 0.05), empty({blocks, b, b}, statistics_dtype(dtype)), row0,
                   group.rows[i], group.terms};
      oft_rotations(part.skew, part.terms, part.rotations);
      c.w.oft.push_back(part);
      c.grads.oft.push_back(zeros(part.skew.sizes(), grad_dtype));
      c.inputs.push_back(part.skew);
    }
    row0 += group.rows[i];
  }
  return c;
}

void compare(const OftGroup& group, at::ScalarType dtype, at::ScalarType grad_dtype) {
  const LinearCase c = make(group, dtype, grad_dtype);
  const double limit = dtype == at::kBFloat16 ? 2e-2 : tolerance(dtype);
  const Oracle oracle = compare_linear(c, 0.0, limit, [&](const std::vector<at::Tensor>& in, const Drop&) {
    const at::Tensor weight = c.w.weight.to(at::kDouble);
    std::vector<at::Tensor> columns;
    std::size_t next = group.bias ? 2 : 1;
    std::int64_t row0 = 0;
    for (std::size_t i = 0; i < group.rows.size(); ++i) {
      const at::Tensor x = group.adapted[i] ? rotated(in[0], in[next++], group) : in[0];
      columns.push_back(at::matmul(x, weight.narrow(0, row0, group.rows[i]).t()));
      row0 += group.rows[i];
    }
    const at::Tensor y = at::cat(columns, 1);
    return group.bias ? y + in[1] : y;
  });
  std::size_t next = group.bias ? 2 : 1;
  for (const at::Tensor& g : c.grads.oft) expect_close(g, 2 * oracle.grads[next++], limit, "gskew");
}

const std::vector<OftGroup>& oft_groups() {
  static const std::vector<OftGroup> all = {
      {13, 48, 8, false, 5, {40, 16, 16}, {true, true, true}, false},
      {13, 48, 8, false, kCayleyExact, {40, 16, 16}, {true, true, true}, false},
      {11, 36, 6, true, 5, {20, 10, 11}, {true, false, true}, true},
      {1, 64, 16, false, 6, {32}, {true}, true},
      {5, 32, 4, true, kCayleyExact, {12, 24}, {false, true}, true},
      {9, 12, 12, false, 4, {12, 24}, {true, false}, false},
      {10, 30, 5, false, 2, {7}, {true}, false},
      {1100, 96, 8, false, 3, {40, 50}, {true, true}, true},
  };
  return all;
}

TEST(Oft, AgreesWithAutograd) {
  for (const at::ScalarType dtype : kDtypes)
    for (const OftGroup& group : oft_groups()) compare(group, dtype, dtype == at::kBFloat16 ? at::kFloat : dtype);
}

TEST(Oft, CayleysTransformIsOrthogonalAndTheSeriesComesNearIt) {
  const at::Tensor skew = randn({3, 28}, at::kDouble, 1, 0.05), rotations = zeros({3, 8, 8}, at::kDouble);
  const at::Tensor one = at::eye(8, rotations.options());
  const auto error = [&](CayleyTerms terms) {
    oft_rotations(skew, terms, rotations);
    const at::Tensor r = rotations + one;
    return relative_error(at::bmm(r, r.transpose(1, 2)), one.expand({3, 8, 8}));
  };
  EXPECT_LT(error(kCayleyExact), 1e-14);
  EXPECT_LT(error(9), error(5));
  EXPECT_LT(error(5), error(2));
  const at::Tensor exact = zeros({3, 8, 8}, at::kDouble);
  oft_rotations(-skew, kCayleyExact, exact);
  oft_rotations(skew, 60, rotations);
  expect_close(rotations, exact, 1e-12, "the series is Cayley's transform of -Q");
}

TEST(Oft, IsBatchInvariantForFewRows) {
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
    const OftGroup group{kMaxGemvRows, 64, 8, false, 5, {40, 24}, {true, false}, true};
    const LinearCase c = make(group, dtype, dtype);
    const at::Tensor all = empty({kMaxGemvRows, 64}, dtype), one = empty({1, 64}, dtype);
    linear_forward(c.inputs[0], c.w, {}, all, {}, workspace());
    for (std::int64_t t = 0; t < kMaxGemvRows; ++t) {
      linear_forward(c.inputs[0].narrow(0, t, 1).clone(), c.w, {}, one, {}, workspace());
      EXPECT_TRUE(one.equal(all.narrow(0, t, 1))) << c10::toString(dtype) << " row " << t;
    }
  }
}

}  // namespace
}  // namespace qft::ops
