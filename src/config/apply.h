// Applies settings to a RunConfig.
#pragma once

#include "qft/config/run_config.h"

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "setting.h"

namespace qft::config {

/// The tool whose defaults apply to missing keys. Keys that only this tool has reveal it.
enum class Dialect { own, swift, llama_factory_v1 };

/// Returns the top-level keys of a parsed file. Throws ConfigError if the document is not a mapping.
std::vector<Setting> settings_of(const Value& document, std::string_view file);

/// Parses "key=value" or "--key=value" from the command line; the key may have dashes or underscores. Throws ConfigError for
/// another form.
Setting override_setting(const std::string& text);

/// Translates the settings to qft's keys and applies them in order (the later wins). Records keys, claims and notes in `config`.
/// Throws ConfigError for unknown and refused keys, for wrong values, and for different values of one key under two names.
/// Returns the dialect of the settings.
Dialect apply_settings(RunConfig& config, const std::vector<Setting>& settings, Purpose purpose = Purpose::any,
                       bool expand_paths = true);

}  // namespace qft::config
