#include "record_value.h"

#include "qft/core/error.h"
#include "qft/core/json.h"
#include "qft/core/json_text.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <limits>
#include <vector>

namespace qft::encode {
namespace {

namespace dom = simdjson::dom;

// A number, or its text, as in csv files.
std::optional<double> number_in(const dom::element& value) {
  double number = 0.0;
  if (value.get(number) == simdjson::SUCCESS) return number;
  std::string_view text;
  if (value.get(text) != simdjson::SUCCESS) return std::nullopt;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size() ? std::optional(number) : std::nullopt;
}

float weight_of(const dom::element& value, const std::string& what) {
  const auto number = number_in(value);
  if (!number || !(*number >= 0) || *number > std::numeric_limits<float>::max())
    fail("{}: expected a label weight of at least 0, got {}; rename the key if it means something else", what, describe(value));
  return static_cast<float>(*number);
}

bool flag_of(const dom::element& value, const std::string& what) {
  const auto flag = as_flag(value);
  if (!flag)
    fail("{}: expected true or false (whether the message is learned), got {}; for a weight use loss_scale or weight", what,
         describe(value));
  return *flag;
}

bool is_among(std::span<const std::string_view> names, std::string_view name) {
  return std::ranges::find(names, name) != names.end();
}

}  // namespace

namespace dom = simdjson::dom;

namespace {

// Returns the remedy for a value that is not a text, by its kind.
std::string_view remedy_for_text(const dom::element& value) {
  switch (value.type()) {
    case dom::element_type::ARRAY:
      return "join its parts into one text";
    case dom::element_type::OBJECT:
      return "write one text; if the model should generate this JSON, put it in quotes";
    case dom::element_type::NULL_VALUE:
      return "write a text, \"\" for an empty one, or remove it";
    case dom::element_type::STRING:
      if (!unreadable_reason(std::string_view(value)).empty()) return "store it as texts";
      return std::string_view(value).ends_with("NaN") ? "write null for a missing value" : "put it in quotes";
    default:
      return "put it in quotes";
  }
}

std::string where_in(std::string_view path, std::string_view key) {
  return fmt::format("{}{}{}", path, path.empty() ? "" : ".", key);
}

// Finds repeated keys. A value's path is built only for an error.
struct SingleKeys {
  struct Step {
    const Step* outer;
    std::string_view key;  // null data: an element of a list
    std::size_t place;
    std::string path() const {
      const std::string before = outer == nullptr ? std::string() : outer->path();
      return key.data() == nullptr ? fmt::format("{}[{}]", before, place) : where_in(before, key);
    }
  };

  static void check(const dom::element& value, const Step* step) {
    switch (value.type()) {
      case dom::element_type::ARRAY: {
        Step inner{step, {}, 0};
        const dom::array list = value;
        for (const dom::element item : list) {
          check(item, &inner);
          ++inner.place;
        }
        return;
      }
      case dom::element_type::OBJECT: {
        const dom::object object = value;
        return check_object(object, step);
      }
      default:
        return;
    }
  }

  static void check_object(const dom::object& object, const Step* step) {
    constexpr std::size_t kFew = 8;
    std::array<std::string_view, kFew> keys;
    std::size_t count = 0;
    Step inner{step, {}, 0};
    for (const auto& field : object) {
      if (count < kFew) {
        for (std::size_t i = 0; i < count; ++i)
          if (keys[i] == field.key) refuse(object, step);
        keys[count] = field.key;
      }
      ++count;
      inner.key = field.key;
      check(field.value, &inner);
    }
    if (count > kFew) refuse_repeated(object, step);
  }

  static void refuse_repeated(const dom::object& object, const Step* step) {
    std::vector<dom::key_value_pair> fields;
    for (const auto& field : object) fields.push_back(field);
    const auto twice = find_repeated(fields, [](const auto& field) { return field.key; });
    if (!twice) return;
    fail("{}", describe_repeated(step == nullptr ? "" : step->path(), fields[twice->first].key,
                                 shortened(simdjson::minify(fields[twice->first].value)),
                                 shortened(simdjson::minify(fields[twice->second].value))));
  }

  [[noreturn]] static void refuse(const dom::object& object, const Step* step) {
    refuse_repeated(object, step);
    fail("a key occurs twice in one object");
  }
};

}  // namespace

void refuse_repeated_keys(const dom::element& record) {
  SingleKeys::check(record, nullptr);
}

std::optional<bool> as_flag(const dom::element& value) {
  if (bool flag = false; value.get(flag) == simdjson::SUCCESS) return flag;
  if (double number = 0; value.get(number) == simdjson::SUCCESS)
    return number == 0 || number == 1 ? std::optional(number == 1) : std::nullopt;
  std::string_view text;
  if (value.get(text) != simdjson::SUCCESS) return std::nullopt;
  std::string word;
  for (const char c : text)
    if (std::isspace(static_cast<unsigned char>(c)) == 0) word += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  const auto is_among = [&](const auto& words) { return std::ranges::find(words, word) != std::end(words); };
  if (is_among(kTrueWords)) return true;
  if (is_among(kFalseWords)) return false;
  return std::nullopt;
}

std::string describe(const dom::element& value) {
  std::string_view text;
  switch (value.type()) {
    case dom::element_type::ARRAY:
      return "a list";
    case dom::element_type::OBJECT:
      return "an object";
    case dom::element_type::STRING:
      if (value.get(text) != simdjson::SUCCESS) return "a text";
      if (is_quoted_number(text)) return fmt::format("the number {}", text.substr(1));
      if (const std::string_view reason = unreadable_reason(text); !reason.empty())
        return fmt::format("a value that cannot be read: {}", reason);
      return fmt::format("the text \"{}\"", shortened(text));
    case dom::element_type::BOOL:
    case dom::element_type::NULL_VALUE:
      return simdjson::minify(value);
    default:
      return fmt::format("the number {}", simdjson::minify(value));
  }
}

bool is_text(const dom::element& value) {
  std::string_view text;
  return value.get(text) == simdjson::SUCCESS && !is_quoted_number(text) && unreadable_reason(text).empty();
}

std::string describe_not_a_text(const dom::element& value, std::string_view what) {
  return fmt::format("{}: expected a text, got {}: {}", what, describe(value), remedy_for_text(value));
}

std::optional<dom::element> find(const dom::object& object, const std::string& key) {
  dom::element value;
  if (key.empty() || object.at_key(key).get(value) != simdjson::SUCCESS || value.is_null()) return std::nullopt;
  return value;
}

std::string text_of(const dom::element& value, std::string_view what) {
  if (!is_text(value)) throw Error(describe_not_a_text(value, what));
  return std::string(std::string_view(value));
}

std::optional<bool> flag_in(const dom::object& object, const std::string& key) {
  const auto value = find(object, key);
  if (!value) return std::nullopt;
  const auto flag = as_flag(*value);
  if (!flag) fail("{}: expected true or false, got {}: write true or false (or yes, no, 1, 0)", key, describe(*value));
  return flag;
}

std::string text_or_empty(const dom::object& object, const std::string& key) {
  const auto value = find(object, key);
  return value ? text_of(*value, key) : std::string();
}

std::string as_python_json(const dom::element& value) {
  return dump_python_json(json_of(value, "a record"));
}

Json json_of(const dom::element& value, std::string_view what) {
  return parse_python_json(simdjson::minify(value), what);
}

std::string text_or_json(const dom::object& object, const std::string& key) {
  const auto value = find(object, key);
  if (!value) return {};
  return value->is_string() ? text_of(*value, key) : as_python_json(*value);
}

dom::object object_of(const dom::element& value, std::string_view what) {
  dom::object object;
  if (value.get(object) != simdjson::SUCCESS)
    fail("{}: expected an object, got {}: {}", what, describe(value),
         value.is_null() ? "remove it" : "write {\"key\": value, ...}");
  return object;
}

dom::array list_of(const dom::object& record, const std::string& key) {
  const auto value = find(record, key);
  dom::array list;
  if (!value) fail("{}: expected a list, got nothing; the record has the keys {}", key, keys_of(record));
  if (value->get(list) != simdjson::SUCCESS)
    fail("{}: expected a list, got {}: {}", key, describe(*value),
         value->is_object() ? "put it in [ ]" : "write [ ] around objects, or name another column in dataset_info.json");
  return list;
}

std::string keys_of(const dom::object& object) {
  std::string keys;
  for (const auto& field : object) keys += fmt::format("{}'{}'", keys.empty() ? "" : ", ", field.key);
  return keys.empty() ? "none" : keys;
}

void read_message_weights(const dom::object& message, std::size_t number, Message& read) {
  std::string_view loss_key, weight_key;
  for (const auto& [key, value] : message) {
    const char first = key.empty() ? '\0' : key.front();
    if ((first != 'l' && first != 't' && first != 'w') || value.is_null()) continue;
    const auto what = [&, &name = key] { return fmt::format("message {}: {}", number, name); };
    if (key == "train_detail" || key == "training_detail")
      fail("{}: qft cannot select parts of a message by position; remove it", what());
    if (is_among(kLossKeys, key)) {
      const bool flag = flag_of(value, what());
      if (read.loss.value_or(flag) != flag) fail("{} is {}, but {} is {}; remove one", what(), flag, loss_key, !flag);
      read.loss = flag;
      loss_key = key;
    } else if (is_among(kWeightKeys, key)) {
      const float weight = weight_of(value, what());
      if (read.weight.value_or(weight) != weight)
        fail("{} is {}, but {} is {}; remove one", what(), weight, weight_key, *read.weight);
      read.weight = weight;
      weight_key = key;
    }
  }
  if (read.loss && read.weight && *read.loss != (*read.weight > 0))
    fail("message {}: {} is {}, but {} is {}; remove one", number, loss_key, *read.loss, weight_key, *read.weight);
}

float record_weight(const dom::object& record, const std::string& column) {
  const auto value = find(record, column);
  return value ? weight_of(*value, column) : 1.0F;
}

}  // namespace qft::encode
