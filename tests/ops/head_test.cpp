#include "qft/ops/head.h"

#include "qft/core/error.h"

#include <limits>

#include "ops_support.h"
#include <ATen/TensorOperators.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/matmul.h>

namespace qft::ops {
namespace {

using namespace testing;

HeadLabels labels_for(std::int64_t tokens, std::int64_t vocab, std::int64_t stride) {
  std::vector<std::int32_t> rows, targets;
  for (std::int64_t t = 0; t < tokens; t += stride) {
    rows.push_back(static_cast<std::int32_t>(t));
    targets.push_back(static_cast<std::int32_t>(t * 31 % vocab));
  }
  return {int32s(rows), int32s(targets)};
}

Oracle plain_head(const at::Tensor& x, const at::Tensor& weight, const HeadLabels& labels, const at::Tensor& grad) {
  return differentiate(
      [&](const std::vector<at::Tensor>& in) {
        const at::Tensor logits = at::matmul(in[0].index_select(0, labels.rows.to(at::kLong)), in[1].t());
        return at::log_softmax(logits, -1).gather(1, labels.targets.to(at::kLong).unsqueeze(1)).squeeze(1);
      },
      {x, weight}, grad);
}

void compare(std::int64_t tokens, std::int64_t width, std::int64_t vocab, std::int64_t stride, at::ScalarType dtype) {
  const at::Tensor x = randn({tokens, width}, dtype, 1), weight = randn({vocab, width}, dtype, 2, 0.3);
  const HeadLabels labels = labels_for(tokens, vocab, stride);
  const at::Tensor grad = randn({labels.size()}, statistics_dtype(dtype), 3);
  const Oracle oracle = plain_head(x, weight, labels, grad);
  // The logits are rounded to bf16, as in transformers.
  const double limit = dtype == at::kBFloat16 ? 1e-2 : tolerance(dtype);

  const at::Tensor logprobs = empty({labels.size()}, statistics_dtype(dtype));
  head_forward(x, weight, labels, logprobs, workspace());
  expect_close(logprobs, oracle.value, limit, "logprobs");

  const at::Tensor gx = empty(x.sizes(), dtype), gw = zeros(weight.sizes(), statistics_dtype(dtype));
  head_backward(x, weight, labels, grad, gx, gw, workspace());
  expect_close(gx, oracle.grads[0], limit, "gx");
  expect_close(gw, oracle.grads[1], limit, "gweight");

  const at::Tensor fused_logprobs = empty(logprobs.sizes(), logprobs.scalar_type()), fused_gx = empty(x.sizes(), dtype);
  const at::Tensor fused_gw = zeros(weight.sizes(), dtype);
  head_forward_backward({.x = x,
                         .weight = weight,
                         .labels = labels,
                         .grad_logprobs = grad,
                         .logprobs = fused_logprobs,
                         .gx = fused_gx,
                         .gweight = fused_gw},
                        workspace());
  EXPECT_TRUE(fused_logprobs.equal(logprobs));
  EXPECT_TRUE(fused_gx.equal(gx));
  expect_close(fused_gw, oracle.grads[1], limit, "gweight in the weight's dtype");
}

TEST(Head, AgreesWithAutograd) {
  for (const at::ScalarType dtype : kDtypes) {
    compare(1, 16, 50, 1, dtype);
    compare(37, 24, 1001, 3, dtype);
    compare(9, 32, 7, 2, dtype);
  }
}

TEST(Head, ResultsDoNotDependOnChunks) {
  for (const at::ScalarType dtype : kDtypes) compare(2 * head_chunk_rows(300) + 5, 8, 300, 1, dtype);
}

TEST(Head, FewerRowsAtATimeGiveTheSame) {
  const at::Tensor x = randn({150, 8}, at::kDouble, 1), weight = randn({40, 8}, at::kDouble, 2);
  const HeadLabels labels = labels_for(150, 40, 1);
  const at::Tensor grad = randn({150}, at::kDouble, 3);
  std::vector<at::Tensor> logprobs, gx, gw;
  for (const std::int64_t rows : {std::int64_t{0}, kMinEfficientRows}) {
    logprobs.push_back(empty({150}, at::kDouble));
    gx.push_back(empty(x.sizes(), at::kDouble));
    gw.push_back(zeros(weight.sizes(), at::kDouble));
    head_forward_backward({.x = x,
                           .weight = weight,
                           .labels = labels,
                           .grad_logprobs = grad,
                           .logprobs = logprobs.back(),
                           .gx = gx.back(),
                           .gweight = gw.back()},
                          workspace(), rows);
  }
  // Not bit-identical: MKL computes fp64 products, and its order of sums may depend on the number of rows, as on AVX2.
  expect_close(logprobs[1], logprobs[0], 1e-14, "logprobs");
  expect_close(gx[1], gx[0], 1e-14, "gx");
  expect_close(gw[1], gw[0], 1e-12, "gweight");
}

TEST(Head, NoLabelsGiveAZeroGradient) {
  const at::Tensor x = randn({3, 8}, at::kFloat, 1), weight = randn({10, 8}, at::kFloat, 2);
  const at::Tensor none = empty({0}, at::kFloat), gx = empty(x.sizes(), at::kFloat);
  head_forward_backward(
      {.x = x, .weight = weight, .labels = {int32s({}), int32s({})}, .grad_logprobs = none, .logprobs = none, .gx = gx},
      workspace());
  EXPECT_TRUE(gx.eq(0).all().item<bool>());
}

TEST(Head, SurvivesLargeLogits) {
  const at::Tensor x = zeros({1, 1}, at::kFloat).fill_(1e4), weight = randn({40, 1}, at::kFloat, 2);
  const at::Tensor logprobs = empty({1}, at::kFloat);
  const Oracle oracle = plain_head(x, weight, {int32s({0}), int32s({3})}, zeros({1}, at::kFloat));
  head_forward(x, weight, {int32s({0}), int32s({3})}, logprobs, workspace());
  expect_close(logprobs, oracle.value, 1e-5, "logprobs");
}

TEST(Head, PassesNanOn) {
  for (const at::ScalarType dtype : kDtypes) {
    const at::Tensor x = randn({2, 8}, dtype, 1), weight = randn({50, 8}, dtype, 2), gx = empty({2, 8}, dtype);
    x[1].fill_(std::numeric_limits<double>::quiet_NaN());
    const at::Tensor logprobs = zeros({2}, statistics_dtype(dtype)), grad = logprobs.clone().fill_(1.0);
    head_forward_backward({.x = x,
                           .weight = weight,
                           .labels = {int32s({0, 1}), int32s({3, 4})},
                           .grad_logprobs = grad,
                           .logprobs = logprobs,
                           .gx = gx},
                          workspace());
    EXPECT_TRUE(logprobs[1].isnan().item<bool>() && gx[1].isnan().all().item<bool>());
    EXPECT_TRUE(gx[0].isfinite().all().item<bool>());
  }
}

TEST(Head, RefusesLabelsOutsideTheVocabularyOrOutOfOrder) {
  const at::Tensor x = randn({3, 8}, at::kFloat, 1), weight = randn({10, 8}, at::kFloat, 2);
  const at::Tensor logprobs = empty({2}, at::kFloat);
  EXPECT_THROW(head_forward(x, weight, {int32s({0, 1}), int32s({3, 10})}, logprobs, workspace()), Error);
  EXPECT_THROW(head_forward(x, weight, {int32s({1, 1}), int32s({3, 4})}, logprobs, workspace()), Error);
  EXPECT_THROW(head_forward(x, weight, {int32s({0, 3}), int32s({3, 4})}, logprobs, workspace()), Error);
}

}  // namespace
}  // namespace qft::ops
