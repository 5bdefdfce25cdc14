// Converts members to JSON and YAML.
#pragma once

#include "qft/config/field.h"

#include <nlohmann/json.hpp>

namespace qft::config {

/// Returns the key's value: null if unset, the key's word if 0 stands for a word.
nlohmann::json field_value(const Field& field, FieldRef ref);

/// Returns the value as one line of YAML that reads back as the same value.
std::string yaml_text(const nlohmann::json& value);

}  // namespace qft::config
