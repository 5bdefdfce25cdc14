// run.json: training writes this description of the run, with its settings, into output_dir.
#pragma once

#include "qft/config/run_config.h"
#include "qft/config/setting.h"

#include <string_view>
#include <vector>

namespace qft::config {

inline constexpr const char* kSavedRun = "run.json";

/// Returns the mapping's entry with this name, or nullptr.
const Value* member(const Value& map, std::string_view key);

/// Returns the mapping's entry with this name, or a null value.
Value member_or_null(const Value& map, std::string_view key);

/// Returns the settings in a run.json; nullptr if `document` does not describe a run.
const Value* settings_in(const Value& document);

/// Converts a value in a run.json to its form on a command line: a list as one text with commas, nothing quoted.
Value as_typed(const Value& value);

/// True if the value differs from the key's default. `key` is a key of qft.
bool differs_from_default(std::string_view key, const Value& value);

/// Returns the settings with which `qft train` repeats the run in `document` (the content of the run.json `file`): the settings
/// that differ from the defaults, and the run's global batch size, so that any number of ranks takes the same steps. Omits the
/// batch size if `overrides` set one. If the result depends on the number of ranks, adds the run's number to `claims`. Throws
/// ConfigError for programs that use models: they need the run's folder.
std::vector<Setting> settings_to_repeat(const Value& document, std::string_view file, const std::vector<Setting>& overrides,
                                        Purpose purpose, std::vector<WorldClaim>& claims);

}  // namespace qft::config
