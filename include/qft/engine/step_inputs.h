// What a step's objective takes: micro-batches on the device, and what is to be known of them before the step.
#pragma once

#include "qft/comm/communicator.h"
#include "qft/config/run_config.h"
#include "qft/engine/instance.h"
#include "qft/engine/objectives.h"
#include "qft/engine/reference.h"
#include "qft/loader/loader.h"

#include <cstdint>
#include <span>
#include <vector>

namespace qft::engine {

/// The estimate of the KL divergence of a global batch, micro-batch by micro-batch: the same bits on any number of ranks.
class KlEstimate {
 public:
  /// `micro_batches`: of all ranks.
  explicit KlEstimate(std::int64_t micro_batches) : sums_(kWidth * static_cast<std::size_t>(micro_batches)) {}
  /// Of micro-batch `index`: the sum of log-ratios of so many sequences, how many items are liked, and the tokens of what is
  /// trained.
  void add(std::int64_t index, double log_ratios, double sequences, double liked, double tokens);
  /// Sets `kl` (not below 0), `liked` and `tokens`. Collective.
  void agree(comm::Communicator& comm, parallel::BatchTotals& totals);

 private:
  static constexpr std::size_t kWidth = 4;
  std::vector<double> sums_;
};

class StepInputs {
 public:
  /// `reference`: null where the run has none of its own. All must outlive this.
  StepInputs(const config::RunConfig& config, Instance& instance, Reference* reference)
      : row_(objective_of(config)),
        counts_chosen_(config.finetuning.stage == "dpo" && config.finetuning.rpo_alpha > 0),
        instance_(instance),
        reference_(reference) {}

  bool estimates_kl() const { return row_.estimates_kl; }
  /// Sets what the objective asks of the totals beside what a batch tells: the estimate, and how many labels chosen answers have.
  /// Collective.
  void complete(parallel::BatchTotals& totals, const loader::StepBatch& batch, comm::Communicator& comm);
  /// What is trained or scored of the micro-batches. `rounds`: of the rank that has most. Collective.
  std::vector<model::MicroInput> inputs(std::span<const loader::MicroBatch> batches, std::int64_t rounds);
  /// Adds the micro-batches, of which `first` is the number among those of all ranks, to the estimate. Collective.
  void estimate_kl(std::span<const loader::MicroBatch> batches, std::int64_t rounds, std::int64_t first, KlEstimate& estimate);

 private:
  std::vector<model::MicroInput> build(std::span<const loader::MicroBatch> batches, std::int64_t rounds, std::int32_t sequence);

  const ObjectiveRow& row_;
  bool counts_chosen_;
  Instance& instance_;
  Reference* reference_;
};

}  // namespace qft::engine
