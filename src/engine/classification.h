// Losses of text classifiers, as in transformers (ForSequenceClassificationLoss).
#pragma once

#include "qft/engine/objectives.h"
#include "qft/parallel/objective.h"

#include <cstdint>
#include <span>
#include <string_view>

namespace qft::engine {

/// Returns the objective of stage seq_cls.
const ObjectiveRow& classification_objective(const config::RunConfig& config);

/// A kind of classification: its targets, and its loss from the head's outputs x [S, N] in fp64. A row of a table.
struct Problem {
  std::string_view name;  ///< a value of problem_type
  /// Fills `target` [N] (zeros) from a label's numbers. Returns an error text; empty if the label is valid.
  std::string (*fill_target)(std::span<const double> label, std::span<double> target);
  /// Losses [S] from x and targets [S, N].
  at::Tensor (*loss)(const at::Tensor& x, const at::Tensor& targets);
  /// d(loss) / d(x), [S, N].
  at::Tensor (*gradient)(const at::Tensor& x, const at::Tensor& targets);
  /// Whether each prediction is correct [S]; null if the notion does not apply.
  at::Tensor (*correct)(const at::Tensor& x, const at::Tensor& targets);
};

/// single_label_classification (cross-entropy), multi_label_classification (binary cross-entropy, mean over the labels) and
/// regression (squared error, mean over the labels).
std::span<const Problem> problems();
/// Throws ConfigError for another name.
const Problem& problem(std::string_view name);

/// Returns the error in a label's numbers; empty if there is none.
std::string fault_of_label(const Problem& problem, std::int64_t labels, std::span<const double> label);

/// The mean loss over the texts of the global batch, independent of micro-batches. Equals transformers' loss of all texts in one
/// batch.
class ClassificationLoss final : public parallel::Objective {
 public:
  ClassificationLoss(const Problem& problem, std::int64_t labels, const parallel::BatchTotals& totals)
      : problem_(problem), labels_(labels), texts_(totals.items) {}
  parallel::ObjectiveKind kind() const override { return parallel::ObjectiveKind::sequence_level; }
  double denominator() const override { return texts_; }
  /// acc, as in ms-swift: the share of texts with all labels correct. Empty for regression.
  std::span<const std::string_view> metrics() const override;
  at::Tensor observe(const model::MicroInput& in, const parallel::Logprobs& values, const at::Tensor& grad) const override;

 private:
  at::Tensor targets_of(const model::MicroInput& in, c10::Device device) const;

  const Problem& problem_;
  std::int64_t labels_;
  double texts_;
};

}  // namespace qft::engine
