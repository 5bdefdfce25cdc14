// What a configuration can say, against what this build runs.
#pragma once

#include "qft/config/run_config.h"

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace qft::config {

/// The one name of strategies that have two: zero0 is ddp, full_shard is zero3.
std::string canonical_strategy(const std::string& name);

/// True if the programs of `purpose` use an adapter or a model as a run left it: they take that run's settings, and its folder.
bool uses_models(Purpose purpose);

/// Whether `qft train` trains, by the keys as they are given: do_train decides; without it do_eval or do_predict alone trains
/// nothing.
bool trains_by(std::optional<bool> do_train, bool do_eval, bool do_predict);

/// Notes the given keys that have no effect for want of another that is not implemented.
void note_without_effect(RunConfig& config);

/// Throws ConfigError where a key has a value that the programs of `purpose` would not act on.
void require_runnable(const RunConfig& config, Purpose purpose);

/// The values of a key that require_runnable() refuses; one that is empty stands for all but the default.
std::vector<std::string_view> not_implemented(std::string_view key, Purpose purpose);

}  // namespace qft::config
