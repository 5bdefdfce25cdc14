// The values of a record, checked; errors say which key holds what instead of what is expected.
#pragma once

#include "qft/core/python_json.h"

#include <optional>
#include <string>
#include <string_view>

#include <simdjson.h>

namespace qft::encode {

/// "a list", "the number 42", "the text "abc"" (its beginning).
std::string describe(const simdjson::dom::element& value);

/// False for a number that only Python has, which is written as a text (python_json.h), and for what no record can hold
/// (unreadable.h).
bool is_text(const simdjson::dom::element& value);

/// "output: expected a text, got the number 42: put it in quotes"; the way out is that of the value's kind.
std::string no_text(const simdjson::dom::element& value, std::string_view what);

/// Throws Error with the key, its object's path and both values where an object, at any depth, has a key twice.
void refuse_repeated_keys(const simdjson::dom::element& record);

/// The words of a flag, in small or capital letters, with blanks or without; beside true and false, 1 and 0 themselves.
inline constexpr std::string_view kTrueWords[] = {"true", "yes", "1", "1.0"};
inline constexpr std::string_view kFalseWords[] = {"false", "no", "0", "0.0"};
/// What every flag of the data is read by: true, false, 1, 0, and these words; nothing for any other value.
std::optional<bool> as_flag(const simdjson::dom::element& value);

/// A member that is there and not null.
std::optional<simdjson::dom::element> find(const simdjson::dom::object& object, const std::string& key);

/// These throw Error starting with `what` or the key where the value has another type; text_or_empty() and
/// text_or_json() give "" where there is none.
std::optional<bool> flag_in(const simdjson::dom::object& object, const std::string& key);
std::string text_of(const simdjson::dom::element& value, std::string_view what);
std::string text_or_empty(const simdjson::dom::object& object, const std::string& key);
/// A text as it is, other values as JSON in Python's spelling.
std::string text_or_json(const simdjson::dom::object& object, const std::string& key);
std::string as_python_json(const simdjson::dom::element& value);
/// The value as Python reads it; `what` names it in errors.
Json json_of(const simdjson::dom::element& value, std::string_view what);
simdjson::dom::object object_of(const simdjson::dom::element& value, std::string_view what);
simdjson::dom::array list_of(const simdjson::dom::object& record, const std::string& key);

/// "'role', 'content'"; "none".
std::string keys_of(const simdjson::dom::object& object);

}  // namespace qft::encode
