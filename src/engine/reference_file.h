// The file of a reference's log-probabilities beside a pack: <pack>.reference, HDF5. Private to engine.
#pragma once

#include "qft/engine/model_source.h"

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace qft::engine {

/// Everything that the log-probabilities depend on.
struct ReferenceIdentity {
  std::string pack;          ///< the pack's fingerprint
  std::string model;         ///< hash of config.json (after rope_scaling) and of the weights: io::sampled_hash()
  std::string adapter;       ///< hash of the adapters; "none" without adapters
  std::string compute;       ///< the type that the reference computes in
  std::string quantization;  ///< quantisation that the run file asks for; "none" without
};

/// `own`: the run that loads the reference (reference_config()) from `source`; `pack`: the fingerprint of the scored pack. Reads ten samples of
/// each large file and small files whole. Throws Error.
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
