// The values of a record, checked; errors say which key holds what instead of what is expected.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include <simdjson.h>

namespace qft::encode {

/// "a list", "the number 42".
std::string describe(const simdjson::dom::element& value);

/// False for a number that only Python has, which is written as a text (python_json.h).
bool is_text(const simdjson::dom::element& value);

/// "output: expected a text, got the number 42: put it in quotes"
std::string no_text(const simdjson::dom::element& value, std::string_view what);

/// A member that is there and not null.
std::optional<simdjson::dom::element> find(const simdjson::dom::object& object, const std::string& key);

/// These throw Error starting with `what` or the key where the value has another type; text_or_empty() and
/// text_or_json() give "" where there is none.
std::string text_of(const simdjson::dom::element& value, std::string_view what);
std::string text_or_empty(const simdjson::dom::object& object, const std::string& key);
/// A text as it is, other values as JSON in Python's spelling.
std::string text_or_json(const simdjson::dom::object& object, const std::string& key);
std::string as_python_json(const simdjson::dom::element& value);
simdjson::dom::object object_of(const simdjson::dom::element& value, std::string_view what);
simdjson::dom::array list_of(const simdjson::dom::object& record, const std::string& key);

/// "tool_calls" of a message, [{"function": {...}}, ...], as the list of the inner objects; "" where there is no call.
std::string calls_of(const simdjson::dom::object& message);

/// "'role', 'content'"; "none".
std::string keys_of(const simdjson::dom::object& object);

}  // namespace qft::encode
