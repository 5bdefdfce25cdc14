// run.json: the description of a run that training writes into output_dir, with the run's settings.
#pragma once

#include "qft/config/run_config.h"

#include <string_view>
#include <vector>

#include "setting.h"

namespace qft::config {

inline constexpr const char* kSavedRun = "run.json";

/// The entry of a mapping; nullptr if it has none of this name.
const Value* member(const Value& map, std::string_view key);

/// The same; null if there is none.
Value member_or_null(const Value& map, std::string_view key);

/// The settings in a run.json; nullptr if `document` describes no run.
const Value* settings_in(const Value& document);

/// `value` of a run.json as it would be typed: a list as one text with commas, nothing quoted.
Value as_typed(const Value& value);

/// Whether the value differs from the default of this key. `key` is one of ours.
bool differs_from_default(std::string_view key, const Value& value);

/// The settings with which `qft train` repeats the run that `document`, the run.json `file`, describes: those that differ from
/// the defaults, and the run's global batch size, so that any number of ranks takes the same steps, unless `overrides` set a
/// batch size. Throws ConfigError if `purpose` does not train: then the run's folder is meant.
std::vector<Setting> settings_to_repeat(const Value& document, std::string_view file, const std::vector<Setting>& overrides,
                                        Purpose purpose);

}  // namespace qft::config
