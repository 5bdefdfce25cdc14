// Objectives: the head computes log-probabilities of the label tokens, an objective turns them into loss, gradients and metrics.
#pragma once

#include "qft/model/transformer.h"

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>

#include <ATen/core/Tensor.h>

namespace qft::parallel {

enum class ObjectiveKind : std::uint8_t {
  row_local,      ///< a label's gradient depends on its own row of logits at most: these are computed once, with their gradient
  sequence_level  ///< gradients depend on whole sequences or items: the head's backward computes the logits again
};

/// What a run's data and memory depend on in its objective.
struct ObjectiveTraits {
  ObjectiveKind kind = ObjectiveKind::row_local;
  int item_sequences = 1;         ///< of an item: 2 for pairs
  bool reference = false;         ///< needs a reference too: the reference lane, or MicroInput::reference
  bool reference_rows = false;    ///< rows of logits of it instead of log-probabilities
  bool scores = false;            ///< of a head of sequences: a function of its values, not of log-probabilities
  bool classes = false;           ///< items say what is to be said of them (MicroInput::classes)
  bool estimates_kl = false;      ///< an item's second sequence is not trained: it estimates BatchTotals::kl before the step
  bool compares_rewards = false;  ///< BatchTotals::reward is asked for before the step
};

/// What the head gives of a micro-batch: log-probabilities of its labels, [L], or values of its sequences, [S * Head::values].
struct Logprobs {
  at::Tensor policy;
  at::Tensor reference;  ///< its sequence_sums(), [S]; undefined where there is no reference, or only its rows were asked for
  at::Tensor rows = {};  ///< [row_values(), L] as Objective::read_rows() filled them in; undefined where there are none
};

/// How many labels each sequence of a micro-batch has: int64 [S] on its device.
at::Tensor label_counts(const model::MicroInput& in);
/// The sum of the labels' `values` [L] of each sequence: fp64 [S] on their device. The bits do not depend on the other sequences.
at::Tensor sequence_sums(const model::MicroInput& in, const at::Tensor& values);

/// What a step counts, over all ranks.
struct BatchTotals {
  double label_tokens = 0, items = 0, tokens = 0;
  double liked = 0;         ///< of the items, where data says so
  double kl = 0;            ///< KL divergence of the policy from the reference, as estimated before the step
  double reward = 0;        ///< what rewards are compared with: a mean of them, as known before the gradients
  double first_labels = 0;  ///< label tokens of the items' first sequences, where an objective asks for them
  bool weighted = false;    ///< micro-batches with labels have MicroInput::label_weights
};

/// The objective of one step. Its loss is a sum over micro-batches, as gradients are.
class Objective {
 public:
  virtual ~Objective() = default;
  virtual ObjectiveKind kind() const = 0;
  /// The loss is the sum of all micro-batches' first sums, over all ranks, divided by this.
  virtual double denominator() const = 0;
  /// Names of the metrics that are reported beside the loss; each is a mean over what it counts.
  virtual std::span<const std::string_view> metrics() const { return {}; }

  /// row_local, without row_values(): d(loss) / d(log-probability) of the labels of `in` into grad [L].
  virtual void known_gradient(const model::MicroInput& in, const at::Tensor& grad) const = 0;
  /// How many values it keeps of each label's row of logits; 0: it looks at none.
  virtual std::int64_t row_values() const { return 0; }
  /// Looks at the rows of some labels of `in` while their logits are there, and fills in `values` [row_values(), n]; where it is
  /// defined `grad` [n] too, d(loss) / d(log-probability). Both have the log-probabilities' type. Returns what else is part of
  /// the gradient of the logits, [n, V], its caller's; undefined: nothing.
  virtual at::Tensor read_rows(const model::MicroInput& /*in*/, const ops::HeadChunk& /*chunk*/, const at::Tensor& /*values*/,
                               const at::Tensor& /*grad*/) const {
    return {};
  }
  /// Whether it reads the reference's rows, HeadChunk::reference.
  virtual bool reference_rows() const { return false; }
  /// Sums of a micro-batch with these log-probabilities (valid during the call): on their device, fp64 [1 + 2 metrics()], its
  /// part of the loss and for each metric a sum and a count. sequence_level: fills grad [L], that of the policy's, too, where it
  /// is defined.
  virtual at::Tensor observe(const model::MicroInput& in, const Logprobs& logprobs, const at::Tensor& grad) const = 0;

  /// What routers of experts add to the loss, and so to gradients.
  virtual model::RoutingLoss routing() const { return {}; }
  /// Turns the metrics of all ranks, by name, into those that are reported. Returns what the loss has beside the sums' part: a
  /// function of means of the global batch.
  virtual double summarise(std::map<std::string, double>& /*metrics*/) const { return 0.0; }
};

/// Of each sequence of a micro-batch: [S], fp64.
struct SequenceSums {
  at::Tensor policy;     ///< the sum of its labels' log-probabilities, as weighted by label_weights()
  at::Tensor reference;  ///< that of the reference, not weighted; undefined without one
  at::Tensor counts;     ///< how many labels there are
  at::Tensor rows = {};  ///< [row_values(), S], of what read_rows() kept of the labels; undefined where it keeps nothing
};

/// A function of the log-probabilities of whole sequences.
class SequenceObjective : public Objective {
 public:
  ObjectiveKind kind() const final { return ObjectiveKind::sequence_level; }
  void known_gradient(const model::MicroInput& in, const at::Tensor& grad) const final;
  at::Tensor observe(const model::MicroInput& in, const Logprobs& logprobs, const at::Tensor& grad) const final;

 protected:
  /// The same from the sums of the sequences. `grad` [S], fp64: d(loss) / d(sums.policy), where it is defined.
  virtual at::Tensor observe_sequences(const model::MicroInput& in, const SequenceSums& sums, const at::Tensor& grad) const = 0;
  /// What each label counts in its sequence's sum: fp64 [L] on the labels' device; undefined: 1. `counts` int64 [S].
  virtual at::Tensor label_weights(const model::MicroInput& /*in*/, const at::Tensor& /*counts*/) const { return {}; }
};

/// Cross-entropy, averaged over the label tokens of the global batch. Where labels have weights w: the sum of w * -log p(label)
/// over the number of label tokens, those with w > 0, and not over the sum of w, as in ms-swift (swift/trainers/
/// seq2seq_trainer.py: the sum of the weighted losses over num_items_in_batch, which counts labels). Metrics then: token/nll, the
/// mean of -log p; token/weight, that of w.
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
