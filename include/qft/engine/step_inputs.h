// Prepares a step's inputs: micro-batches on the device, and estimates that the objective needs before the step.
#pragma once

#include "qft/comm/communicator.h"
#include "qft/config/run_config.h"
#include "qft/engine/batch_sums.h"
#include "qft/engine/instance.h"
#include "qft/engine/objectives.h"
#include "qft/engine/reference.h"
#include "qft/loader/loader.h"

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace qft::engine {

/// An estimate from a forward pass over a global batch, made before the pass that trains or scores it: the KL divergence (stage
/// kto) or the mean reward (BCO). The same bits on any number of ranks.
class Estimate {
 public:
  /// `micro_batches`: count over all ranks.
  explicit Estimate(std::int64_t micro_batches) : sums_(micro_batches, kWidth) {}
  /// Adds micro-batch `index`: the sum of `count` log-ratios or rewards, the number of desirable items, and the number of trained
  /// tokens.
  void add(std::int64_t index, double sum, double count, double desirable, double tokens) {
    sums_.set(index, std::array{sum, count, desirable, tokens});
  }
  /// Sets `kl` (at least 0), `desirable` and `tokens`. Collective.
  void reduce_kl(comm::Communicator& comm, parallel::BatchTotals& totals);
  /// Sets `reward` (0 without answers). Collective.
  void reduce_reward(comm::Communicator& comm, parallel::BatchTotals& totals);

 private:
  static constexpr std::size_t kWidth = 4;
  BatchSums sums_;
};

/// Builds the inputs of a run's steps and evaluations.
class StepInputs {
 public:
  /// `reference`: null if the run has no separate reference. All arguments must outlive this.
  StepInputs(const config::RunConfig& config, Instance& instance, Reference* reference)
      : config_(config),
        row_(objective_of(config)),
        counts_chosen_(config.finetuning.stage == "dpo" && config.finetuning.rpo_alpha > 0),
        instance_(instance),
        reference_(reference) {}

  /// True if an estimating pass comes before the pass that trains or scores.
  bool estimates() const { return row_.estimates_kl || compares_rewards(); }
  /// True if the objective needs BatchTotals::reward.
  bool compares_rewards() const;
  /// Sets the totals that the objective needs and a batch alone does not give: the estimate (for rewards the batch's mean) and
  /// the number of labels of chosen answers. Collective.
  void fill_totals(parallel::BatchTotals& totals, const loader::StepBatch& batch, comm::Communicator& comm);
  /// Returns the inputs to train or score. After fill_totals() pass the micro-batches of the same batch. `rounds`:
  /// micro-batches of the rank that has most. Collective.
  std::vector<model::MicroInput> inputs(std::span<const loader::MicroBatch> batches, std::int64_t rounds);
  /// Adds micro-batches to the estimate; `first` is the number of the first one among all ranks' micro-batches. Collective.
  void estimate(std::span<const loader::MicroBatch> batches, std::int64_t rounds, std::int64_t first, Estimate& estimate);
  /// Reduces the estimate over the ranks and writes it to the totals. Collective.
  void reduce_estimate(Estimate& estimate, comm::Communicator& comm, parallel::BatchTotals& totals) const;

 private:
  void estimate_kl(std::span<const loader::MicroBatch> batches, std::int64_t rounds, std::int64_t first, Estimate& estimate);
  void estimate_rewards(std::span<const model::MicroInput> inputs, std::int64_t rounds, std::int64_t first, Estimate& estimate);
  std::vector<model::MicroInput> build(std::span<const loader::MicroBatch> batches, std::int64_t rounds, std::int32_t sequence);

  const config::RunConfig& config_;
  const ObjectiveRow& row_;
  bool counts_chosen_;
  Instance& instance_;
  Reference* reference_;
  /// inputs that fill_totals() already built for the reward estimate; inputs() returns them
  std::optional<std::vector<model::MicroInput>> scored_inputs_;
};

}  // namespace qft::engine
