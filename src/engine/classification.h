// Losses of classifiers of texts, as transformers has them (ForSequenceClassificationLoss).
#pragma once

#include "qft/parallel/objective.h"

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace qft::engine {

/// What a text's label is, and the loss of a text from the values x [S, N] that the head gives, in fp64. A row of a table.
struct Problem {
  std::string_view name;  ///< a value of problem_type
  /// Fills `target` [N], which is zero, in from a label's numbers; empty, or what is wrong with them.
  std::string (*aim)(std::span<const double> label, std::span<double> target);
  /// [S] from x and targets [S, N].
  at::Tensor (*loss)(const at::Tensor& x, const at::Tensor& targets);
  /// d(loss) / d(x), [S, N].
  at::Tensor (*gradient)(const at::Tensor& x, const at::Tensor& targets);
  /// Whether what the classifier says of each text is right, [S]; null: there is no right or wrong.
  at::Tensor (*right)(const at::Tensor& x, const at::Tensor& targets);
};

/// single_label_classification (cross-entropy), multi_label_classification (binary cross-entropy, the mean over the labels) and
/// regression (squared error, likewise).
std::span<const Problem> problems();
/// Throws ConfigError for another name.
const Problem& problem(std::string_view name);

/// What is wrong with a label's numbers; empty: nothing.
std::string fault_of_label(const Problem& problem, std::int64_t labels, std::span<const double> label);

/// The loss is the mean over the texts of the global batch, whatever the micro-batches: transformers' with all texts in one
/// batch.
class ClassificationLoss final : public parallel::Objective {
 public:
  ClassificationLoss(const Problem& problem, std::int64_t labels, const parallel::BatchTotals& totals)
      : problem_(problem), labels_(labels), texts_(totals.items) {}
  parallel::ObjectiveKind kind() const override { return parallel::ObjectiveKind::sequence_level; }
  double denominator() const override { return texts_; }
  /// acc, ms-swift's: the share of the texts of which all labels are right. None of a regression.
  std::span<const std::string_view> metrics() const override;
  void known_gradient(const model::MicroInput& in, const at::Tensor& grad) const override;
  at::Tensor observe(const model::MicroInput& in, const parallel::Logprobs& values, const at::Tensor& grad) const override;

 private:
  at::Tensor targets_of(const model::MicroInput& in, c10::Device device) const;

  const Problem& problem_;
  std::int64_t labels_;
  double texts_;
};

}  // namespace qft::engine
