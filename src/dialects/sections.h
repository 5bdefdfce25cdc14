// Keys with a mapping of further keys: the sections of LLaMA-Factory's version 1, `parallel`, and accelerate's
// parallelism_config.
#pragma once

#include <string_view>
#include <vector>

#include "config_names.h"

namespace qft::dialects {

/// True for "section.key".
bool is_below(std::string_view key, std::string_view section);

/// Splits each section into settings: peft_config with r and name becomes peft_config.r and peft_config.name, each with its own
/// line. A later null removes a section. Throws ConfigError for a section that is not a mapping.
std::vector<Setting> split_sections(std::vector<Setting> settings);

}  // namespace qft::dialects
