// Reads the reference's log-probabilities from a file beside the pack: <pack>.reference, HDF5. They are computed once for all
// runs with the same reference and data: TRL's precompute_ref_log_probs. The losses need one number per sequence: the sum over
// its labels.
#pragma once

#include "qft/engine/data_setup.h"
#include "qft/engine/model_source.h"
#include "qft/engine/reference.h"

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
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

/// Everything that the log-probabilities depend on.
struct ReferenceIdentity {
  std::string pack;          ///< the pack's fingerprint
  std::string model;         ///< hash of config.json (after rope_scaling) and of the weights: io::sampled_hash()
  std::string adapter;       ///< hash of the adapters; "none" without adapters
  std::string compute;       ///< the type that the reference computes in
  std::string quantization;  ///< quantisation that the run file asks for; "none" without
};

/// `own`: the run that loads the reference (reference_config()) from `source`; `pack`: the fingerprint of the scored pack. Reads
/// ten samples of each large file and small files whole. Throws Error.
ReferenceIdentity identity_of(const config::RunConfig& own, const ModelSource& source, const std::string& pack);

/// The known log-probabilities of a pack.
struct ReferenceSums {
  std::int64_t items = 0;      ///< the first `items` items of the pack are known
  std::vector<double> values;  ///< [sequences of the pack] sums of the labels' log-probabilities; 0 if not known yet
};

std::filesystem::path reference_path(const std::filesystem::path& pack);

/// Replaces the file atomically: after a crash either the old or the new file is there.
void write_reference(const std::filesystem::path& path, const ReferenceIdentity& identity, const ReferenceSums& sums);

/// Returns nullopt if the file does not exist. Throws ConfigError with both values if its identity differs, Error if it is
/// damaged; such a file is neither used nor replaced.
std::optional<ReferenceSums> read_reference(const std::filesystem::path& path, const ReferenceIdentity& identity,
                                            std::int64_t items, std::int64_t sequences);

}  // namespace qft::engine
