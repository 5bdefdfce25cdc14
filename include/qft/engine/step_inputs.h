// What a step's objective takes: micro-batches on the device, and what is to be known of them before the step.
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

/// What is estimated of a global batch by a forward pass before the one that trains or scores it: the KL divergence (stage kto),
/// or the mean reward (BCO). The same bits on any number of ranks.
class Estimate {
 public:
  /// `micro_batches`: of all ranks.
  explicit Estimate(std::int64_t micro_batches) : sums_(micro_batches, kWidth) {}
  /// Of micro-batch `index`: the sum of so many log-ratios or rewards, how many items are liked, and the tokens of what is
  /// trained.
  void add(std::int64_t index, double sum, double count, double liked, double tokens) {
    sums_.set(index, std::array{sum, count, liked, tokens});
  }
  /// Sets `kl` (not below 0), `liked` and `tokens`. Collective.
  void agree_on_kl(comm::Communicator& comm, parallel::BatchTotals& totals);
  /// Sets `reward`, of no answers 0. Collective.
  void agree_on_reward(comm::Communicator& comm, parallel::BatchTotals& totals);

 private:
  static constexpr std::size_t kWidth = 4;
  BatchSums sums_;
};

class StepInputs {
 public:
  /// `reference`: null where the run has none of its own. All must outlive this.
  StepInputs(const config::RunConfig& config, Instance& instance, Reference* reference)
      : config_(config),
        row_(objective_of(config)),
        counts_chosen_(config.finetuning.stage == "dpo" && config.finetuning.rpo_alpha > 0),
        instance_(instance),
        reference_(reference) {}

  /// Whether a pass goes before that which trains or scores.
  bool estimates() const { return row_.estimates_kl || compares_rewards(); }
  /// Whether BatchTotals::reward is asked for.
  bool compares_rewards() const;
  /// Sets what the objective asks of the totals beside what a batch tells: the estimate (of rewards the batch's own mean), and
  /// how many labels chosen answers have. Collective.
  void complete(parallel::BatchTotals& totals, const loader::StepBatch& batch, comm::Communicator& comm);
  /// What is trained or scored of the micro-batches; after complete() of a batch, of that batch. `rounds`: of the rank that has
  /// most. Collective.
  std::vector<model::MicroInput> inputs(std::span<const loader::MicroBatch> batches, std::int64_t rounds);
  /// Adds the micro-batches, of which `first` is the number among those of all ranks, to the estimate. Collective.
  void estimate(std::span<const loader::MicroBatch> batches, std::int64_t rounds, std::int64_t first, Estimate& estimate);
  /// Sets what was estimated. Collective.
  void agree(Estimate& estimate, comm::Communicator& comm, parallel::BatchTotals& totals) const;

 private:
  void estimate_kl(std::span<const loader::MicroBatch> batches, std::int64_t rounds, std::int64_t first, Estimate& estimate);
  void estimate_rewards(std::span<const model::MicroInput> inputs, std::int64_t rounds, std::int64_t first, Estimate& estimate);
  std::vector<model::MicroInput> build(std::span<const loader::MicroBatch> batches, std::int64_t rounds, std::int32_t sequence);

  const config::RunConfig& config_;
  const ObjectiveRow& row_;
  bool counts_chosen_;
  Instance& instance_;
  Reference* reference_;
  std::optional<std::vector<model::MicroInput>> same_;  ///< those whose rewards complete() estimated, which inputs() are
};

}  // namespace qft::engine
