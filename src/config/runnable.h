// What a configuration can say, against what this build runs.
#pragma once

#include "qft/config/run_config.h"

#include <string>

namespace qft::config {

/// The one name of strategies that have two: zero0 is ddp, full_shard is zero3.
std::string canonical_strategy(const std::string& name);

/// Throws ConfigError where a key has a value that the programs of `purpose` would not act on.
void require_runnable(const RunConfig& config, Purpose purpose);

}  // namespace qft::config
