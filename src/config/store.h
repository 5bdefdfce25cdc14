// Puts a Value into the member behind a key, checked against the key's type and rule.
#pragma once

#include "qft/config/field.h"

#include <string_view>

#include "value.h"

namespace qft::config {

/// Stores `value` through `ref`. Null unsets a nullable member and resets another one to `initial`, which
/// refers to the same key of a fresh RunConfig. Throws ConfigError "where: expected ..., got ...": `where`
/// names source and key. `expand`: whether ~ and $VARS in paths expand.
void store(const Field& field, FieldRef ref, FieldRef initial, const Value& value, std::string_view where, bool expand = true);

/// A list or mapping inside a text (from the command line, or as JSON in quotes) as what it is; other values as they are.
Value unwrap(const Value& value, std::string_view where);

/// What the key takes: "an integer", "true or false", "one of a, b, c", ...
std::string expected(const Field& field, FieldRef ref);

}  // namespace qft::config
