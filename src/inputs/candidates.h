// What of a run may be copied to each node's own disk.
#pragma once

#include "qft/config/run_config.h"
#include "qft/hub/fetch.h"
#include "qft/inputs/staged.h"

#include <filesystem>
#include <string>
#include <vector>

namespace qft::inputs {

/// A path of the run that may be copied: its key in RunConfig::folders, and which files of it are read.
struct Candidate {
  enum class Kind : std::uint8_t { plain, dataset_dir, dataset };
  std::string key;
  hub::Wanted wanted;
  Kind kind = Kind::plain;  ///< dataset_dir: what the named datasets need of it; dataset: a path, if it is no entry's name
};

/// The same on all ranks, whatever they see.
std::vector<Candidate> candidates(const config::RunConfig& config, config::Purpose purpose);

/// What a copy of it is made of, without hashes; no files where there is nothing to copy here, or only what qft does not read.
/// Throws Error where a file's name is no UTF-8.
StagedItem item_of(const config::RunConfig& config, const Candidate& candidate);

}  // namespace qft::inputs
