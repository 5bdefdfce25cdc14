// What a reference says of a pack, as a file beside it: <pack>.reference, HDF5. Private to engine.
#pragma once

#include "qft/config/run_config.h"

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace qft::engine {

/// All that its log-probabilities depend on.
struct ReferenceIdentity {
  std::string pack;          ///< its fingerprint
  std::string model;         ///< of config.json, scaled as rope_scaling says, and of the weights: io::sampled_hash()
  std::string adapter;       ///< of the adapters on it; "none"
  std::string compute;       ///< the type that it computes in
  std::string quantization;  ///< of its weights, as the run file says; "none"
};

/// `own`: the run that loads the reference (reference_config()); `pack`: the fingerprint of what it scores. Reads ten samples of
/// each file, and small ones whole. Throws Error.
ReferenceIdentity identity_of(const config::RunConfig& own, const std::string& pack);

struct ReferenceSums {
  std::int64_t items = 0;      ///< the first so many of the pack are known
  std::vector<double> values;  ///< [sequences of the pack] sums of the labels' log-probabilities; 0 of what is not known
};

std::filesystem::path reference_path(const std::filesystem::path& pack);

/// Replaces the file: after a crash the old one is there, or the new one.
void write_reference(const std::filesystem::path& path, const ReferenceIdentity& identity, const ReferenceSums& sums);

/// Nothing where there is no such file. Throws ConfigError with both values where it is of another identity, Error where it is
/// damaged: neither is used, and neither is replaced.
std::optional<ReferenceSums> read_reference(const std::filesystem::path& path, const ReferenceIdentity& identity,
                                            std::int64_t items, std::int64_t sequences);

}  // namespace qft::engine
