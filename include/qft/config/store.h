// Stores a Value in a key's member after checking the key's type and rule.
#pragma once

#include "qft/config/field.h"
#include "qft/config/value.h"

#include <string_view>

namespace qft::config {

/// Stores `value` through `ref`. Null unsets a nullable member and resets any other member to `initial`, the same key's member in
/// a fresh RunConfig. `expand`: expand ~ and $VARS in paths. `where` names source and key. Throws ConfigError "where: expected
/// ..., got ...".
void store(const Field& field, FieldRef ref, FieldRef initial, const Value& value, std::string_view where, bool expand = true);

/// Parses a text that holds a list or mapping (from the command line, or JSON in quotes). Returns other values unchanged.
Value parse_nested(const Value& value, std::string_view where);

/// Describes the allowed values: "an integer", "true or false", "one of a, b, c", ...
std::string expected(const Field& field, FieldRef ref);

}  // namespace qft::config
