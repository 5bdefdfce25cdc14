// Reads the values of a record with checks. Errors name the key, its value and the expected type.
#pragma once

#include "qft/core/python_json.h"

#include <optional>
#include <string>
#include <string_view>

#include <simdjson.h>

namespace qft::encode {

/// Formats "a list", "the number 42", "the text "abc"" (its beginning).
std::string describe(const simdjson::dom::element& value);

/// False for numbers that only Python allows, which are stored as texts (python_json.h), and for values that no record can hold
/// (unreadable.h).
bool is_text(const simdjson::dom::element& value);

/// Formats "output: expected a text, got the number 42: put it in quotes", with a remedy for the value's kind.
std::string describe_not_a_text(const simdjson::dom::element& value, std::string_view what);

/// Throws Error with the key, its path and both values if an object, at any depth, has a key twice.
void refuse_repeated_keys(const simdjson::dom::element& record);

/// Words for a flag, in any case, with or without blanks around them; besides true, false, 1 and 0.
inline constexpr std::string_view kTrueWords[] = {"true", "yes", "1", "1.0"};
inline constexpr std::string_view kFalseWords[] = {"false", "no", "0", "0.0"};
/// Reads a flag of the data: true, false, 1, 0, and these words. Nothing for any other value.
std::optional<bool> as_flag(const simdjson::dom::element& value);

/// Returns a member that exists and is not null.
std::optional<simdjson::dom::element> find(const simdjson::dom::object& object, const std::string& key);

/// These throw Error starting with `what` or the key if the value has another type. text_or_empty() and text_or_json() return
/// "" if there is no value.
std::optional<bool> flag_in(const simdjson::dom::object& object, const std::string& key);
std::string text_of(const simdjson::dom::element& value, std::string_view what);
std::string text_or_empty(const simdjson::dom::object& object, const std::string& key);
/// Returns a text as it is, and other values as JSON in Python's spelling.
std::string text_or_json(const simdjson::dom::object& object, const std::string& key);
std::string as_python_json(const simdjson::dom::element& value);
/// Converts the value as Python reads it; `what` names it in errors.
Json json_of(const simdjson::dom::element& value, std::string_view what);
simdjson::dom::object object_of(const simdjson::dom::element& value, std::string_view what);
simdjson::dom::array list_of(const simdjson::dom::object& record, const std::string& key);

/// Formats "'role', 'content'"; "none" if empty.
std::string keys_of(const simdjson::dom::object& object);

}  // namespace qft::encode
