// Compares the classification losses with torch's own, differentiated by autograd, in fp64.
#include "engine/classification.h"

#include "qft/core/error.h"
#include "qft/encode/item_columns.h"

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/ops/argmax.h>
#include <ATen/ops/binary_cross_entropy_with_logits.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/full.h>
#include <ATen/ops/mse_loss.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>

namespace qft::engine {
namespace {

constexpr std::int64_t kClassLabels = 3;
constexpr double kTexts = 7.0;  // texts of the global batch; the micro-batch has four

model::MicroInput texts(const std::vector<std::vector<double>>& classes) {
  const std::vector<std::int32_t> tokens(8), bounds = {0, 1, 4, 6, 8};
  model::MicroInput in = model::MicroInput::build(tokens, bounds, {}, {}, at::kCPU);
  Column targets{IndexSpace::item};
  for (const auto& label : classes) targets.append_list(label);
  if (!classes.empty()) in.set_columns({{std::string(columns::kTargets), targets}});
  return in;
}

/// Expects that the gradients and sums of `name` for outputs x equal those of `judged`, the sum of the texts' losses.
at::Tensor expect_as_judged(const char* name, const model::MicroInput& in, const at::Tensor& x, const at::Tensor& judged) {
  (judged / kTexts).backward();
  const ClassificationLoss loss(problem(name), kClassLabels, {.items = kTexts});
  EXPECT_EQ(loss.denominator(), kTexts);
  const at::Tensor values = x.detach().view({-1}), grad = at::empty_like(values);
  const at::Tensor sums = loss.observe(in, {values, {}}, grad);
  EXPECT_NEAR(sums[0].item<double>(), judged.item<double>(), 1e-12) << name;
  EXPECT_LT((grad.view_as(x) - x.grad()).abs().max().item<double>(), 1e-14) << name;
  EXPECT_EQ(sums.numel(), static_cast<std::int64_t>(1 + 2 * loss.metrics().size())) << name;
  EXPECT_TRUE(loss.observe(in, {values, {}}, {}).equal(sums)) << name;
  return sums;
}

at::Tensor values_of_texts() {
  return at::randn({4, kClassLabels}, at::kDouble).requires_grad_(true);
}

TEST(Classification, OfOneLabelIsCrossEntropy) {
  const at::Tensor x = values_of_texts(), labels = at::tensor({2, 0, 1, 1}, at::kLong);
  const at::Tensor judged = at::cross_entropy_loss(x, labels, {}, at::Reduction::Sum);
  const at::Tensor sums = expect_as_judged("single_label_classification", texts({{2}, {0}, {1}, {1}}), x, judged);
  EXPECT_EQ(sums[1].item<double>(), at::argmax(x, 1).eq(labels).sum().item<double>());
  EXPECT_EQ(sums[2].item<double>(), 4.0);
}

TEST(Classification, OfAnyNumberOfLabelsIsBinaryCrossEntropy) {
  const at::Tensor x = values_of_texts();
  const at::Tensor there = at::tensor({1, 0, 1, 0, 0, 0, 0, 1, 0, 1, 1, 1}, at::kDouble).view({4, kClassLabels});
  const at::Tensor judged = at::binary_cross_entropy_with_logits(x, there, {}, {}, at::Reduction::None).mean(1).sum();
  const at::Tensor sums = expect_as_judged("multi_label_classification", texts({{0, 2}, {}, {1}, {2, 1, 0}}), x, judged);
  EXPECT_EQ(sums[1].item<double>(), x.sigmoid().gt(0.5).eq(there.gt(0)).all(1).sum().item<double>());
}

TEST(Classification, OfNumbersIsTheirSquaredError) {
  const at::Tensor x = values_of_texts(), targets = at::randn({4, kClassLabels}, at::kDouble);
  std::vector<std::vector<double>> classes;
  for (std::int64_t i = 0; i < 4; ++i)
    classes.push_back({targets[i][0].item<double>(), targets[i][1].item<double>(), targets[i][2].item<double>()});
  expect_as_judged("regression", texts(classes), x, at::mse_loss(x, targets, at::Reduction::None).mean(1).sum());
}

TEST(Classification, FarValuesStayFinite) {
  const at::Tensor far = at::full({4 * kClassLabels}, 1e4, at::kDouble), grad = at::empty_like(far);
  for (const char* name : {"single_label_classification", "multi_label_classification"}) {
    const ClassificationLoss loss(problem(name), kClassLabels, {.items = kTexts});
    EXPECT_TRUE(loss.observe(texts({{2}, {0}, {1}, {1}}), {far, {}}, grad).isfinite().all().item<bool>()) << name;
    EXPECT_TRUE(grad.isfinite().all().item<bool>()) << name;
  }
}

TEST(Classification, SaysWhatIsWrongWithALabel) {
  const auto fault = [](const char* name, std::vector<double> label) {
    return fault_of_label(problem(name), kClassLabels, label);
  };
  EXPECT_EQ(fault("single_label_classification", {2}), "");
  EXPECT_EQ(fault("single_label_classification", {3}), "3 is not a whole number from 0 to 2");
  EXPECT_EQ(fault("single_label_classification", {0.5}), "0.5 is not a whole number from 0 to 2");
  EXPECT_EQ(fault("single_label_classification", {0, 1}), "expected one number");
  EXPECT_EQ(fault("multi_label_classification", {}), "");
  EXPECT_EQ(fault("multi_label_classification", {0, -1}), "-1 is not a whole number from 0 to 2");
  EXPECT_EQ(fault("regression", {0.5, -2, 7}), "");
  EXPECT_EQ(fault("regression", {0.5}), "expected 3 numbers");
  EXPECT_THROW(problem("ranking"), ConfigError);
  const ClassificationLoss loss(problem("regression"), kClassLabels, {.items = kTexts});
  EXPECT_THROW(loss.observe(texts({}), {at::randn({4 * kClassLabels}, at::kDouble), {}}, {}), Error);
}

}  // namespace
}  // namespace qft::engine
