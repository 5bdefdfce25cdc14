// The inputs of a run that may be copied to each node's local disk.
#pragma once

#include "qft/config/run_config.h"
#include "qft/hub/fetch.h"
#include "qft/inputs/staged.h"

#include <string>
#include <vector>

namespace qft::inputs {

/// A path that may be copied: its key in RunConfig::folders, and the files that qft reads from it.
struct Candidate {
  enum class Kind : std::uint8_t { plain, dataset_dir, dataset };
  std::string key;
  hub::FileSelection wanted;
  Kind kind = Kind::plain;  ///< dataset_dir: only files of the named datasets; dataset: a path, unless it is an entry's name
};

/// Returns the candidates, the same on all ranks, whether or not they see the files.
std::vector<Candidate> candidates(const config::RunConfig& config, config::Purpose purpose);

/// Lists the files to copy, without hashes; no files if this node has nothing to copy or only files that qft does not read.
/// Throws Error if a file's name is not UTF-8.
StagedItem item_of(const config::RunConfig& config, const Candidate& candidate);

}  // namespace qft::inputs
