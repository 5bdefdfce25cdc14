// Reads the reference's log-probabilities from a file beside the pack. They are computed once for all runs with the same
// reference and data: TRL's precompute_ref_log_probs. The losses need one number per sequence: the sum over its labels.
#pragma once

#include "qft/engine/data_setup.h"
#include "qft/engine/reference.h"

#include <functional>
#include <vector>

namespace qft::engine {

/// Called on each rank between micro-batches; if any rank returns true, the pass ends on all ranks.
using StopRequested = std::function<bool()>;

/// Fills columns::kReference with precomputed sums in host memory.
class StoredReference final : public ColumnSource {
 public:
  /// `sums` [sequences of the pack]: the same on every rank; 8 bytes of host memory per sequence.
  explicit StoredReference(std::vector<double> sums) : sums_(std::move(sums)) {}
  void fill(const SourceBatch& batch, std::span<model::MicroInput> micros) override;

 private:
  std::vector<double> sums_;
};

/// For a training run of `source` with precompute_ref_log_probs, returns references from the files beside its packs; else null
/// ones. Missing sums are computed first, with one forward pass of the reference over the packs under the run's strategy; the
/// reference is freed afterwards. Collective. Throws ConfigError if a file belongs to another pack or reference, Error if it is
/// damaged, and job::Stopped on a stop request, after writing the sums computed so far.
References stored_references(const config::RunConfig& config, const ModelSource& source, const TrainingData& data,
                             comm::Communicator& comm, c10::Device device, const StopRequested& asked);

}  // namespace qft::engine
