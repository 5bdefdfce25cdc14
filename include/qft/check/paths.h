// The paths that a run file names.
#pragma once

#include "qft/check/check.h"
#include "qft/config/run_config.h"

#include <vector>

namespace qft::check {

/// Returns the files that ranks read (each data file of a dataset separately) and the folders that are written. All ranks get the
/// same list, even if some ranks lack a file; paths below `config.folders` are each rank's own. Collective over `world`.
std::vector<NeededPath> paths_of(const config::RunConfig& config, comm::Communicator& world);

}  // namespace qft::check
