// Checks a configuration against the features of this build.
#pragma once

#include "qft/config/run_config.h"

#include <string_view>
#include <vector>

namespace qft::config {

/// Throws ConfigError if a key has a value that the programs of `purpose` do not implement.
void require_runnable(const RunConfig& config, Purpose purpose);

/// Returns the key's values that require_runnable() refuses; an empty one means all except the default.
std::vector<std::string_view> not_implemented(std::string_view key, Purpose purpose);

}  // namespace qft::config
