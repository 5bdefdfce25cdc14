// Objectives. The head computes log-probabilities of the label tokens; an objective turns them into loss, gradients and metrics.
#pragma once

#include "qft/model/transformer.h"

#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>

#include <ATen/core/Tensor.h>

namespace qft::columns {

/// Sequences: fp64, the sum of the log-probabilities of the sequence's labels under a reference model.
inline constexpr std::string_view kReference = "reference";
/// Labels: [L, E], the labels' input rows of the reference model's head, with that head.
inline constexpr std::string_view kReferenceRows = "reference_rows";

}  // namespace qft::columns

namespace qft::parallel {

enum class ObjectiveKind : std::uint8_t {
  /// a label's gradient depends on its own row of logits at most: logits are computed once, together with their gradient
  row_local,
  sequence_level  ///< gradients depend on whole sequences or items: the head's backward computes the logits again
};

/// A forward pass that an objective needs before the pass that trains.
enum class PassBefore : std::uint8_t {
  none,
  untrained_sequences,  ///< over the items' sequences that do not train
  trained_sequences     ///< over the sequences that train
};

/// Properties of an objective that decide a run's memory and time.
struct ObjectiveTraits {
  ObjectiveKind kind = ObjectiveKind::row_local;
  int item_sequences = 1;       ///< sequences per item; 2 for pairs; an estimate if it varies
  bool reference = false;       ///< reads columns::kReference or kReferenceRows: a lane of the action lists, or another source
  bool reference_rows = false;  ///< reads columns::kReferenceRows
  PassBefore pass_before = PassBefore::none;
};

/// Output of the head for a micro-batch: log-probabilities of its labels, [L], or values of its sequences, [S * Head::values].
struct Logprobs {
  at::Tensor policy;
  at::Tensor reference;  ///< sequence_sums() of the reference, [S]; undefined without a reference, or if only its rows are needed
  at::Tensor rows = {};  ///< [row_values(), L] as filled by Objective::read_rows(); undefined if row_values() is 0
};

/// Returns the number of labels of each sequence in a micro-batch: int64 [S] on the micro-batch's device.
at::Tensor label_counts(const model::MicroInput& in);
/// Sums the labels' `values` [L] over each sequence: fp64 [S] on their device. The bits of a sum do not depend on the other
/// sequences.
at::Tensor sequence_sums(const model::MicroInput& in, const at::Tensor& values);

/// Counts of a step, over all ranks.
struct BatchTotals {
  double label_tokens = 0, items = 0, tokens = 0;
  bool weighted = false;  ///< micro-batches with labels have the column columns::kLabelWeights
  /// Totals that an objective reads by name; a source computes them before the step.
  std::map<std::string, double, std::less<>> named = {};

  /// Returns the named total. Throws Error with its name if it is not known.
  double at(std::string_view name) const;
};

/// The objective of one step. Its loss is a sum over micro-batches, like gradients.
class Objective {
 public:
  virtual ~Objective() = default;
  virtual ObjectiveKind kind() const = 0;
  /// Returns the divisor of the loss: loss = (sum of all micro-batches' first sums, over all ranks) / denominator().
  virtual double denominator() const = 0;
  /// Returns the names of the metrics that are reported beside the loss. Each is a mean.
  virtual std::span<const std::string_view> metrics() const { return {}; }

  /// For row_local objectives without row_values(), whose gradient is known before the logits: writes d(loss) /
  /// d(log-probability) of the labels of `in` into grad [L]. Not called for others; they inherit a function that throws.
  virtual void known_gradient(const model::MicroInput& in, const at::Tensor& grad) const;
  /// Returns how many values the objective keeps per label's row of logits; 0: it does not read the logits.
  virtual std::int64_t row_values() const { return 0; }
  /// Reads the rows of some labels of `in` while their logits exist. Fills `values` [row_values(), n] and, if it is defined,
  /// `grad` [n] with d(loss) / d(log-probability); both have the log-probabilities' type. Returns a further part of the logits'
  /// gradient, [n, V], owned by the caller; undefined: no further part. If ranks share the vocabulary, each of them calls this
  /// with its columns of the logits, and all must call the same functions of `chunk`.
  virtual at::Tensor read_rows(const model::MicroInput& /*in*/, const ops::HeadChunk& /*chunk*/, const at::Tensor& /*values*/,
                               const at::Tensor& /*grad*/) const {
    return {};
  }
  /// True if read_rows() reads the reference's rows, HeadChunk::reference.
  virtual bool reference_rows() const { return false; }
  /// Returns the sums of a micro-batch with these log-probabilities (valid during the call): fp64 [1 + 2 metrics()] on their
  /// device. The first is the micro-batch's part of the loss; each metric has a sum and a count. sequence_level: also fills grad
  /// [L], the gradient of logprobs.policy, if it is defined.
  virtual at::Tensor observe(const model::MicroInput& in, const Logprobs& logprobs, const at::Tensor& grad) const = 0;

  /// Returns the routers' loss terms, which add to the loss and so to gradients.
  virtual model::RoutingLoss routing() const { return {}; }
  /// Replaces the metrics of all ranks, by name, with the metrics to report. Returns the part of the loss that is not a sum over
  /// micro-batches: a function of means of the global batch.
  virtual double summarise(std::map<std::string, double>& /*metrics*/) const { return 0.0; }
};

/// Sums of each sequence of a micro-batch: [S], fp64.
struct SequenceSums {
  at::Tensor policy;     ///< sum of the labels' log-probabilities, weighted by label_weights()
  at::Tensor reference;  ///< the same sum for the reference, unweighted; undefined without a reference
  at::Tensor counts;     ///< number of labels
  at::Tensor rows = {};  ///< [row_values(), S]: sums of the values that read_rows() kept; undefined if it keeps none
};

/// A function of the log-probabilities of whole sequences.
class SequenceObjective : public Objective {
 public:
  ObjectiveKind kind() const final { return ObjectiveKind::sequence_level; }
  at::Tensor observe(const model::MicroInput& in, const Logprobs& logprobs, const at::Tensor& grad) const final;

 protected:
  /// Computes observe() from the sequences' sums. Fills `grad` [S], fp64, with d(loss) / d(sums.policy), if it is defined.
  virtual at::Tensor observe_sequences(const model::MicroInput& in, const SequenceSums& sums, const at::Tensor& grad) const = 0;
  /// Returns the weight of each label in its sequence's sum: fp64 [L] on the labels' device; undefined: 1. `counts` is int64 [S].
  virtual at::Tensor label_weights(const model::MicroInput& /*in*/, const at::Tensor& /*counts*/) const { return {}; }
};

/// Cross-entropy, averaged over the label tokens of the global batch. If labels have weights w: the sum of w * -log p(label)
/// divided by the number of label tokens with w > 0, not by the sum of w. ms-swift does the same
/// (swift/trainers/seq2seq_trainer.py: the sum of the weighted losses over num_items_in_batch, which counts labels). Metrics in
/// that case: token/nll, the mean of -log p, and token/weight, the mean of w.
class TokenMeanLoss final : public Objective {
 public:
  explicit TokenMeanLoss(const BatchTotals& totals) : denominator_(totals.label_tokens), weighted_(totals.weighted) {}
  ObjectiveKind kind() const override { return ObjectiveKind::row_local; }
  double denominator() const override { return denominator_; }
  std::span<const std::string_view> metrics() const override;
  void known_gradient(const model::MicroInput& in, const at::Tensor& grad) const override;
  at::Tensor observe(const model::MicroInput& in, const Logprobs& logprobs, const at::Tensor& grad) const override;

 private:
  double denominator_;
  bool weighted_;
};

}  // namespace qft::parallel
