// From a tree of settings to a RunConfig.
#pragma once

#include "qft/config/run_config.h"

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "setting.h"

namespace qft::config {

/// Whose defaults are meant where a key is not given: keys that only one tool has tell it.
enum class Dialect { own, swift, llama_factory_v1 };

/// The top-level keys of a parsed file; throws ConfigError if it is no mapping.
std::vector<Setting> settings_of(const Value& document, std::string_view file);

/// "key=value" or "--key=value" of the command line, the key with dashes or underscores; throws ConfigError for another form.
Setting override_setting(const std::string& text);

/// Applies the settings in order (the later of two wins) under our own keys, and records keys, claims and
/// notes in `config`. Throws ConfigError for unknown and refused keys, for wrong values, and where a key has
/// two values under two names. Returns whose language the settings speak.
Dialect apply_settings(RunConfig& config, const std::vector<Setting>& settings, Purpose purpose = Purpose::any,
                       bool expand_paths = true);

}  // namespace qft::config
