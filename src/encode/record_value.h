// Reads the values and the label weights of a record with checks. Errors name the key, its value and the expected type.
#pragma once

#include "qft/core/python_json.h"
#include "qft/encode/conversation.h"

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include <simdjson.h>

namespace qft::encode {

/// Formats "a list", "the number 42", "the text "abc"" (its beginning).
std::string describe(const simdjson::dom::element& value);

/// False for numbers that only Python allows, which are stored as texts (python_json.h), and for values that no record can hold
/// (core/json_text.h).
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

/// Message keys that say whether the message is learned (true or false; ms-swift's key, then axolotl's), and keys for the
/// weight of its text (a number >= 0; ms-swift's key, then OpenAI's).
inline constexpr std::string_view kLossKeys[] = {"loss", "train", "training"};
inline constexpr std::string_view kWeightKeys[] = {"loss_scale", "weight"};

/// Sets loss and weight of message `number` from these keys; null counts as absent. Throws Error if a value is invalid or two
/// keys contradict each other.
void read_message_weights(const simdjson::dom::object& message, std::size_t number, Message& read);

/// Returns the number in a record's `column`; 1 if there is none. Throws Error if it is not a number >= 0.
float record_weight(const simdjson::dom::object& record, const std::string& column);

}  // namespace qft::encode
