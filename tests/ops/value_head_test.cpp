// Compares the head of a reward model with autograd.
#include "qft/ops/value_head.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

namespace qft::ops {
namespace {

TEST(ValueHead, MatchesALinear) {
  const at::Tensor y = at::randn({5, 7}, at::kDouble).requires_grad_(true),
                   weight = at::randn({1, 7}, at::kDouble).requires_grad_(true),
                   bias = at::randn({1}, at::kDouble).requires_grad_(true);
  const at::Tensor expected = at::linear(y, weight, bias).view(-1), given = at::randn({5}, at::kDouble);
  expected.backward(given);

  const at::Tensor values = at::empty({5}, at::kDouble), gy = at::empty({5, 7}, at::kDouble);
  const at::Tensor gweight = at::full({1, 7}, 0.5, at::kDouble), gbias = at::full({1}, 0.25, at::kDouble);
  value_head_forward(y.detach(), weight.detach(), bias.detach(), values);
  value_head_backward(y.detach(), weight.detach(), given, gy, gweight, gbias);
  EXPECT_LT((values - expected).abs().max().item<double>(), 1e-13);
  EXPECT_LT((gy - y.grad()).abs().max().item<double>(), 1e-13);
  EXPECT_LT((gweight - 0.5 - weight.grad()).abs().max().item<double>(), 1e-13);
  EXPECT_LT((gbias - 0.25 - bias.grad()).abs().max().item<double>(), 1e-13);
}

TEST(ValueHead, StoresASequencesValuesSideBySide) {
  const at::Tensor y = at::randn({5, 7}, at::kDouble).requires_grad_(true),
                   weight = at::randn({3, 7}, at::kDouble).requires_grad_(true);
  const at::Tensor expected = at::linear(y, weight), given = at::randn({15}, at::kDouble);
  expected.backward(given.view({5, 3}));

  const at::Tensor values = at::empty({15}, at::kDouble), gy = at::empty({5, 7}, at::kDouble);
  const at::Tensor gweight = at::full({3, 7}, 0.5, at::kDouble);
  value_head_forward(y.detach(), weight.detach(), {}, values);
  value_head_backward(y.detach(), weight.detach(), given, gy, gweight, {});
  EXPECT_LT((values.view({5, 3}) - expected).abs().max().item<double>(), 1e-13);
  EXPECT_LT((gy - y.grad()).abs().max().item<double>(), 1e-13);
  EXPECT_LT((gweight - 0.5 - weight.grad()).abs().max().item<double>(), 1e-13);
}

TEST(ValueHead, SumsBf16InFp32) {
  const at::Tensor y = at::randn({3, 512}, at::kBFloat16), weight = at::randn({1, 512}, at::kBFloat16),
                   bias = at::randn({1}, at::kBFloat16);
  const at::Tensor values = at::empty({3}, at::kFloat), gy = at::empty({3, 512}, at::kBFloat16),
                   given = at::randn({3}, at::kFloat);
  value_head_forward(y, weight, bias, values);
  const at::Tensor exact = at::linear(y.to(at::kDouble), weight.to(at::kDouble), bias.to(at::kDouble)).view(-1);
  const at::Tensor usual = at::linear(y.to(at::kFloat), weight.to(at::kFloat), bias.to(at::kFloat)).view(-1);
  EXPECT_LE((values - exact).abs().max().item<double>(), 1.5 * (usual - exact).abs().max().item<double>() + 1e-7);

  const at::Tensor gweight = at::zeros({1, 512}, at::kFloat), gbias = at::zeros({1}, at::kFloat);
  value_head_backward(y, weight, given, gy, gweight, gbias);
  EXPECT_TRUE(gy.equal((given.view({3, 1}) * weight.to(at::kFloat)).to(at::kBFloat16)));
  EXPECT_LT((gweight - given.view({1, 3}).matmul(y.to(at::kFloat))).abs().max().item<double>(), 1e-4);
  value_head_backward(y, weight, given, gy, {}, {});  // frozen
}

}  // namespace
}  // namespace qft::ops
