// Compares the heads without weights with autograd.
#include "qft/ops/value_head.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/norm.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

namespace qft::ops {
namespace {

TEST(VectorHead, NormalisesRows) {
  const at::Tensor y = at::randn({5, 7}, at::kDouble).requires_grad_(true), given = at::randn({35}, at::kDouble);
  const at::Tensor expected = y / y.norm(2, {1}, true).clamp_min(1e-12);
  expected.backward(given.view({5, 7}));

  const at::Tensor values = at::empty({35}, at::kDouble), gy = at::empty({5, 7}, at::kDouble);
  vector_head_forward(y.detach(), values);
  vector_head_backward(y.detach(), given, gy);
  EXPECT_LT((values.view({5, 7}) - expected).abs().max().item<double>(), 1e-14);
  EXPECT_LT((gy - y.grad()).abs().max().item<double>(), 1e-13);
  EXPECT_LT((gy * y.detach()).sum(1).abs().max().item<double>(), 1e-13);  // the length has no gradient
}

TEST(VectorHead, StaysFiniteAtZero) {
  const at::Tensor y = at::zeros({1, 3}, at::kDouble), given = at::full({3}, 1e-13, at::kDouble);
  const at::Tensor values = at::empty({3}, at::kDouble), gy = at::empty({1, 3}, at::kDouble);
  vector_head_forward(y, values);
  vector_head_backward(y, given, gy);
  EXPECT_TRUE(values.equal(at::zeros({3}, at::kDouble)));
  EXPECT_LT((gy - 0.1).abs().max().item<double>(), 1e-13);  // divided by the smallest length
}

TEST(VectorHead, WidensBf16) {
  const at::Tensor y = at::randn({3, 512}, at::kBFloat16), values = at::empty({3 * 512}, at::kFloat);
  vector_head_forward(y, values);
  const at::Tensor exact = y.to(at::kDouble) / y.to(at::kDouble).norm(2, {1}, true);
  EXPECT_LT((values.view({3, 512}) - exact).abs().max().item<double>(), 1e-7);
}

TEST(TokenDifference, SubtractsTwoLogits) {
  const at::Tensor y = at::randn({5, 7}, at::kDouble).requires_grad_(true),
                   table = at::randn({11, 7}, at::kDouble).requires_grad_(true), given = at::randn({5}, at::kDouble);
  const at::Tensor logits = y.matmul(table.t()), expected = logits.select(1, 9) - logits.select(1, 2);
  expected.backward(given);

  const TokenPair tokens{9, 2};
  const at::Tensor values = at::empty({5}, at::kDouble), gy = at::empty({5, 7}, at::kDouble),
                   gtable = at::full({11, 7}, 0.5, at::kDouble);
  token_difference_forward(y.detach(), table.detach(), tokens, values);
  token_difference_backward(y.detach(), table.detach(), tokens, given, gy, gtable);
  EXPECT_LT((values - expected).abs().max().item<double>(), 1e-13);
  EXPECT_LT((gy - y.grad()).abs().max().item<double>(), 1e-13);
  EXPECT_LT((gtable - 0.5 - table.grad()).abs().max().item<double>(), 1e-13);

  token_difference_backward(y.detach(), table.detach(), tokens, given, gy, {});  // frozen
  EXPECT_LT((gy - y.grad()).abs().max().item<double>(), 1e-13);
}

}  // namespace
}  // namespace qft::ops
