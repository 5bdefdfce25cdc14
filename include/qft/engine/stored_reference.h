// The reference's log-probabilities from a file beside the pack, computed once for all runs that compare with the same model on
// the same data: TRL's precompute_ref_log_probs. The losses need of each sequence the sum over its labels only.
#pragma once

#include "qft/engine/data_setup.h"
#include "qft/engine/reference.h"

#include <functional>
#include <vector>

namespace qft::engine {

/// Asked on each rank between micro-batches; a true on any of them ends the pass on all.
using AskedToEnd = std::function<bool()>;

class StoredReference final : public Reference {
 public:
  /// `sums` [sequences of the pack]: the same on every rank, 8 bytes of host memory each.
  explicit StoredReference(std::vector<double> sums) : sums_(std::move(sums)) {}
  void score(std::span<const loader::MicroBatch> batches, std::span<model::MicroInput> micros, std::int64_t rounds) override;

 private:
  std::vector<double> sums_;
};

/// Of a training run with precompute_ref_log_probs, else null: from the files beside its packs. What they lack is computed first,
/// with one forward pass of the reference over the packs under the run's strategy; the reference is freed then. Collective.
/// Throws ConfigError where a file is of another pack or reference, Error where it is damaged, job::Stopped at a request to end,
/// after what is done has been written.
References stored_references(const config::RunConfig& config, const TrainingData& data, comm::Communicator& comm,
                             c10::Device device, const AskedToEnd& asked);

}  // namespace qft::engine
