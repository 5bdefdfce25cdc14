// What a run file names.
#pragma once

#include "qft/check/check.h"
#include "qft/config/run_config.h"

#include <vector>

namespace qft::check {

/// The files that every rank reads, of datasets each by itself, and the folders that are written: on all ranks the same list,
/// also where some lack what others have, with each rank's own paths below `config.folders`. Collective over `world`.
std::vector<NeededPath> paths_of(const config::RunConfig& config, comm::Communicator& world);

}  // namespace qft::check
