// Checks a configuration against the features of this build.
#pragma once

#include "qft/config/run_config.h"

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace qft::config {

/// Returns the canonical name of a strategy: zero0 is ddp, full_shard is zero3.
std::string canonical_strategy(const std::string& name);

/// True if the programs of `purpose` use a trained adapter or model: they accept its folder and read its run's settings.
bool uses_models(Purpose purpose);

/// True if `qft train` trains: do_train decides if given; else do_eval or do_predict turns training off.
bool trains_by(std::optional<bool> do_train, bool do_eval, bool do_predict);

/// Notes given keys without effect because a related key is not implemented.
void note_without_effect(RunConfig& config);

/// Throws ConfigError if a key has a value that the programs of `purpose` do not implement.
void require_runnable(const RunConfig& config, Purpose purpose);

/// Returns the key's values that require_runnable() refuses; an empty one means all except the default.
std::vector<std::string_view> not_implemented(std::string_view key, Purpose purpose);

}  // namespace qft::config
