#include "record_value.h"

#include "qft/core/error.h"

#include "python_json.h"

namespace qft::encode {

namespace dom = simdjson::dom;

std::string describe(const dom::element& value) {
  std::string_view text;
  switch (value.type()) {
    case dom::element_type::ARRAY:
      return "a list";
    case dom::element_type::OBJECT:
      return "an object";
    case dom::element_type::STRING:
      return value.get(text) == simdjson::SUCCESS && is_quoted_number(text) ? fmt::format("the number {}", text.substr(1))
                                                                            : "a text";
    case dom::element_type::BOOL:
    case dom::element_type::NULL_VALUE:
      return simdjson::minify(value);
    default:
      return fmt::format("the number {}", simdjson::minify(value));
  }
}

bool is_text(const dom::element& value) {
  std::string_view text;
  return value.get(text) == simdjson::SUCCESS && !is_quoted_number(text);
}

std::string no_text(const dom::element& value, std::string_view what) {
  const std::string_view way_out = value.is_array() || value.is_object() ? "" : ": put it in quotes";
  return fmt::format("{}: expected a text, got {}{}", what, describe(value), way_out);
}

std::optional<dom::element> find(const dom::object& object, const std::string& key) {
  dom::element value;
  if (key.empty() || object.at_key(key).get(value) != simdjson::SUCCESS || value.is_null()) return std::nullopt;
  return value;
}

std::string text_of(const dom::element& value, std::string_view what) {
  if (!is_text(value)) throw Error(no_text(value, what));
  return std::string(std::string_view(value));
}

std::string text_or_empty(const dom::object& object, const std::string& key) {
  const auto value = find(object, key);
  return value ? text_of(*value, key) : std::string();
}

std::string as_python_json(const dom::element& value) {
  return dump_python_json(parse_python_json(simdjson::minify(value), "a record"));
}

std::string text_or_json(const dom::object& object, const std::string& key) {
  const auto value = find(object, key);
  if (!value) return {};
  return value->is_string() ? text_of(*value, key) : as_python_json(*value);
}

dom::object object_of(const dom::element& value, std::string_view what) {
  dom::object object;
  if (value.get(object) != simdjson::SUCCESS) fail("{}: expected an object, got {}", what, describe(value));
  return object;
}

dom::array list_of(const dom::object& record, const std::string& key) {
  const auto value = find(record, key);
  dom::array list;
  if (!value) fail("{}: expected a list, got nothing; the record has the keys {}", key, keys_of(record));
  if (value->get(list) != simdjson::SUCCESS) fail("{}: expected a list, got {}", key, describe(*value));
  return list;
}

std::string calls_of(const dom::object& message) {
  const auto value = find(message, "tool_calls");
  dom::array calls;
  if (!value) return {};
  if (value->get(calls) != simdjson::SUCCESS) fail("tool_calls: expected a list, got {}", describe(*value));
  std::string list;
  for (const dom::element call : calls) {
    const auto function = find(object_of(call, "tool_calls"), "function");
    if (!function) fail("tool_calls: a call without a function");
    list += (list.empty() ? "[" : ", ") + as_python_json(*function);
  }
  return list.empty() ? list : list + "]";
}

std::string keys_of(const dom::object& object) {
  std::string keys;
  for (const auto& field : object) keys += fmt::format("{}'{}'", keys.empty() ? "" : ", ", field.key);
  return keys.empty() ? "none" : keys;
}

}  // namespace qft::encode
