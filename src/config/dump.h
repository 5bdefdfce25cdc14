// A member as JSON.
#pragma once

#include "qft/config/field.h"

#include <nlohmann/json.hpp>

namespace qft::config {

/// The value behind a key; null where it is not set, the key's word where a number stands for one.
nlohmann::json field_value(const Field& field, FieldRef ref);

/// The value on one line of YAML; reading it gives the same value.
std::string yaml_text(const nlohmann::json& value);

}  // namespace qft::config
