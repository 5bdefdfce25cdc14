// What a run file names.
#pragma once

#include "qft/check/check.h"
#include "qft/config/run_config.h"

#include <vector>

namespace qft::check {

/// The files that every rank reads, of datasets each by itself, and the folders that are written.
std::vector<NeededPath> paths_of(const config::RunConfig& config);

}  // namespace qft::check
