// From a tree of settings to a RunConfig.
#pragma once

#include "qft/config/run_config.h"

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "value.h"

namespace qft::config {

/// One key with its value, and where it was set.
struct Setting {
  std::string key;
  Value value;
  std::string source;  // "run.yaml:12" or "command line"
  std::string where;   // "run.yaml:12: lora_rank" or "command line: lora_rank=x": the head of error messages
};

/// The top-level keys of a parsed file; throws ConfigError if it is no mapping.
std::vector<Setting> settings_of(const Value& document, std::string_view file);

/// "key=value" of the command line; throws ConfigError for another form.
Setting override_setting(const std::string& text);

/// Applies the settings in order (the later of two wins) and records keys and notes in `config`.
/// Throws ConfigError for unknown and refused keys and for wrong values.
void apply_settings(RunConfig& config, const std::vector<Setting>& settings, bool expand_paths = true);

}  // namespace qft::config
