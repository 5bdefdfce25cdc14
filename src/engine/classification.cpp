#include "classification.h"

#include "qft/core/error.h"
#include "qft/core/units.h"
#include "qft/device/upload.h"
#include "qft/encode/item_columns.h"

#include <algorithm>
#include <cmath>

#include "item_count.h"
#include <ATen/TensorOperators.h>
#include <ATen/ops/argmax.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/log_sigmoid.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/stack.h>
#include <fmt/ranges.h>

namespace qft::engine {
namespace {

using at::Tensor;
using Label = std::span<const double>;

constexpr std::string_view kClassMetrics[] = {"acc"};

/// Sets target[number] to 1 for each number. Returns an error text; empty if all numbers are valid.
std::string fill_classes(Label label, std::span<double> target) {
  for (const double number : label) {
    if (number != std::floor(number) || number < 0 || number >= static_cast<double>(target.size()))
      return fmt::format("{} is not a whole number from 0 to {}", number, target.size() - 1);
    target[static_cast<std::size_t>(number)] = 1.0;
  }
  return {};
}

std::string fill_one_class(Label label, std::span<double> target) {
  if (label.size() != 1) return "expected one number";
  return fill_classes(label, target);
}

std::string fill_values(Label label, std::span<double> target) {
  if (label.size() != target.size()) return fmt::format("expected {}", count_noun(std::ssize(target), "number"));
  std::ranges::copy(label, target.begin());
  return {};
}

Tensor cross_entropy(const Tensor& x, const Tensor& targets) {
  return (at::log_softmax(x, 1) * targets).sum(1).neg();
}
Tensor cross_entropy_gradient(const Tensor& x, const Tensor& targets) {
  return at::softmax(x, 1) - targets;
}
Tensor largest_is_correct(const Tensor& x, const Tensor& targets) {
  return at::argmax(x, 1).eq(at::argmax(targets, 1));
}

/// -t log sigmoid(x) - (1 - t) log sigmoid(-x), where sigmoid(-x) = 1 - sigmoid(x).
Tensor binary_cross_entropy(const Tensor& x, const Tensor& targets) {
  return ((1.0 - targets) * x - at::log_sigmoid(x)).mean(1);
}
Tensor binary_cross_entropy_gradient(const Tensor& x, const Tensor& targets) {
  return (at::sigmoid(x) - targets) / static_cast<double>(x.size(1));
}
/// Predicts a label if its probability exceeds 0.5.
Tensor all_are_correct(const Tensor& x, const Tensor& targets) {
  return x.gt(0.0).eq(targets.gt(0.5)).all(1);
}

Tensor squared_error(const Tensor& x, const Tensor& targets) {
  return (x - targets).square().mean(1);
}
Tensor squared_error_gradient(const Tensor& x, const Tensor& targets) {
  return (x - targets) * (2.0 / static_cast<double>(x.size(1)));
}

constexpr Problem kProblems[] = {
    {"single_label_classification", fill_one_class, cross_entropy, cross_entropy_gradient, largest_is_correct},
    {"multi_label_classification", fill_classes, binary_cross_entropy, binary_cross_entropy_gradient, all_are_correct},
    {"regression", fill_values, squared_error, squared_error_gradient, nullptr},
};

/// Throws ConfigError for the first invalid label.
void check_labels(const pack::PackReader& pack, const loader::ItemSubset& items, const config::RunConfig& config) {
  const config::FinetuningArgs& f = config.finetuning;
  const std::int64_t labels = f.num_labels.value_or(1);
  const Problem& kind = problem(f.effective_problem_type(labels));
  const std::vector<std::string> tags = pack.item_tags();
  const ItemCount without(pack, items, [&](std::int64_t number) {
    const auto label = encode::targets_from_tags(pack::tags_from_json(tags.at(static_cast<std::size_t>(number))));
    if (!label) return true;
    const std::string fault = fault_of_label(kind, labels, *label);
    if (fault.empty()) return false;
    const encode::EncodedItem item = pack.origin(number);
    fail_config("'{}': record {} of '{}' has the label [{}]: {} ({} with num_labels: {})", pack.path().string(),
                item.source_index, pack.attributes().sources.at(static_cast<std::size_t>(item.dataset)).name,
                fmt::join(*label, ", "), fault, kind.name, labels);
  });
  if (without.count > 0)
    fail_config(
        "'{}': {} of {} texts have no label (the first: item {}), but stage seq_cls needs one: name the label column as label in "
        "dataset_info.json, or call it label in a file that dataset names itself",
        pack.path().string(), without.count, without.all, without.first);
}

constexpr std::string_view kClassColumns[] = {columns::kTargets};

constexpr ObjectiveRow kClassificationObjective = {
    .name = "seq_cls",
    .kind = parallel::ObjectiveKind::sequence_level,
    .columns = kClassColumns,
    .make = [](const config::RunConfig& config, const parallel::BatchTotals& totals) -> std::unique_ptr<parallel::Objective> {
      const auto& f = config.finetuning;
      return std::make_unique<ClassificationLoss>(problem(f.effective_problem_type(f.num_labels.value_or(1))),
                                                  f.num_labels.value_or(1), totals);
    },
    .check_items = check_labels};

}  // namespace

const ObjectiveRow& classification_objective(const config::RunConfig&) {
  return kClassificationObjective;
}

std::span<const Problem> problems() {
  return kProblems;
}

const Problem& problem(std::string_view name) {
  const auto row = std::ranges::find(kProblems, name, &Problem::name);
  if (row == std::end(kProblems))
    fail_config("problem_type {} is not implemented: qft train --help lists the implemented ones", name);
  return *row;
}

std::string fault_of_label(const Problem& problem, std::int64_t labels, Label label) {
  std::vector<double> target(static_cast<std::size_t>(labels), 0.0);
  return problem.fill_target(label, target);
}

std::span<const std::string_view> ClassificationLoss::metrics() const {
  return problem_.correct == nullptr ? std::span<const std::string_view>() : kClassMetrics;
}

Tensor ClassificationLoss::targets_of(const model::MicroInput& in, c10::Device device) const {
  const auto texts = static_cast<std::size_t>(in.sequences.num_sequences()), width = static_cast<std::size_t>(labels_);
  const Column& given = in.columns.at(columns::kTargets).lists;
  std::vector<double> targets(texts * width, 0.0);
  for (std::size_t i = 0; i < texts; ++i)
    if (const std::string fault = problem_.fill_target(given.entry(i), std::span(targets).subspan(i * width, width));
        !fault.empty())
      fail("a label is [{}]: {}", fmt::join(given.entry(i), ", "), fault);
  return device::upload(std::span<const double>(targets), device).view({-1, labels_});
}

Tensor ClassificationLoss::observe(const model::MicroInput& in, const parallel::Logprobs& values, const Tensor& grad) const {
  const Tensor x = values.policy.to(at::kDouble).view({-1, labels_}), targets = targets_of(in, x.device());
  if (grad.defined()) grad.copy_((problem_.gradient(x, targets) / texts_).view({-1}));
  const Tensor loss = problem_.loss(x, targets).sum().view({1});
  if (problem_.correct == nullptr) return loss;
  const Tensor correct = problem_.correct(x, targets).to(at::kDouble).sum();
  return at::cat({loss, at::stack({correct, at::full_like(correct, static_cast<double>(x.size(0)))})});
}

}  // namespace qft::engine
