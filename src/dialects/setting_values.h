// Values of settings as words, and settings under another name.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "config_names.h"

namespace qft::dialects {

/// Returns the word for a value in the tables: "null", "true", "false" or its text; empty for lists and mappings.
std::string word_of(const Value& value);

/// Returns a scalar that stands in `line`; null for the word "null".
Value scalar(std::string_view text, int line);

/// Returns `setting` under the name `key`; messages keep the name that was typed.
Setting as(const Setting& setting, std::string_view key, Value value);

/// Returns the last setting with this key; nullptr if there is none.
const Setting* latest(const std::vector<Setting>& settings, std::string_view key);

/// The same, and nullptr if its value is null.
const Setting* latest_value(const std::vector<Setting>& settings, std::string_view key);

}  // namespace qft::dialects
