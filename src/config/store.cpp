#include "qft/config/store.h"

#include "qft/config/expand_path.h"
#include "qft/config/nearest.h"
#include "qft/core/error.h"

#include <algorithm>
#include <cmath>
#include <type_traits>

namespace qft::config {
namespace {

using nlohmann::json;

std::string trim(std::string_view text) {
  const auto first = text.find_first_not_of(" \t\r\n");
  if (first == std::string_view::npos) return {};
  return std::string(text.substr(first, text.find_last_not_of(" \t\r\n") - first + 1));
}

class Store {
 public:
  Store(const Field& field, FieldRef ref, const Value& value, std::string_view where, bool expand)
      : field_(field), ref_(ref), value_(value), where_(where), expand_(expand) {}

  void into(bool& member) const {
    const auto flag = as_bool(value_);
    if (!flag) reject(value_);
    member = *flag;
  }
  void into(std::int64_t& member) const {
    if (is_zero_word()) {
      member = 0;
      return;
    }
    const auto number = as_int(value_);
    if (!number) reject(value_);
    check_range(static_cast<double>(*number));
    member = *number;
  }
  void into(double& member) const { member = is_zero_word() ? 0.0 : number_of(value_); }
  void into(std::string& member) const { member = text_of(value_); }
  void into(std::vector<std::string>& member) const {
    std::vector<std::string> items;
    for (const Value& item : items_of(value_)) items.push_back(text_of(item));
    member = std::move(items);
  }
  void into(std::vector<double>& member) const {
    std::vector<double> items;
    for (const Value& item : items_of(value_)) items.push_back(number_of(item));
    member = std::move(items);
  }
  template <class T>
  void into(std::optional<T>& member) const {
    T inner{};
    into(inner);
    member = inner;
  }
  void into(json& member) const { member = as_json(parse_nested(value_, where_)); }

 private:
  [[noreturn]] void reject(const Value& value) const {
    const std::string_view meant = value.kind == Value::Kind::scalar ? mistyped(value.text) : "";
    const std::string advice = meant.empty() ? std::string(field_.advice) : fmt::format("did you mean '{}'?", meant);
    fail_config("{}: expected {}, got {}{}{}", where_, expected(field_, ref_), describe(value), advice.empty() ? "" : ": ",
                advice);
  }
  // Returns the nearest choice with at least three letters and the same first letter: orpo is not a mistyped dpo, nor ppo a pt.
  std::string_view mistyped(std::string_view word) const {
    std::vector<std::string_view> alike;
    for (const std::string_view choice : field_.choices)
      if (!word.empty() && choice.size() > 2 && choice.front() == word.front()) alike.push_back(choice);
    return nearest(word, alike);
  }
  bool is_zero_word() const { return !field_.zero.empty() && value_.kind == Value::Kind::scalar && value_.text == field_.zero; }
  void check_range(double number) const {
    const bool low = field_.min_excluded ? number > field_.min : number >= field_.min;
    const bool high = field_.max_excluded ? number < field_.max : number <= field_.max;
    const bool whole = !field_.whole_from_one || number < 1.0 || number == std::floor(number);
    if (!low || !high || !whole) reject(value_);
  }
  double number_of(const Value& value) const {
    const auto number = as_double(value);
    if (!number) reject(value);
    check_range(*number);
    return *number;
  }
  std::string text_of(const Value& value) const {
    if (value.kind != Value::Kind::scalar) reject(value);
    if (field_.is_path && expand_) return expand_path(value.text, where_);
    if (field_.choices.empty()) return value.text;
    const auto is_choice = [&](std::string_view word) {
      return std::find(field_.choices.begin(), field_.choices.end(), word) != field_.choices.end();
    };
    if (is_choice(value.text)) return value.text;
    if (as_bool(value) == false && is_choice("no")) return "no";
    reject(value);
  }
  // Accepts a list, or one text with commas.
  std::vector<Value> items_of(const Value& value) const {
    const Value list = parse_nested(value, where_);
    std::vector<Value> items;
    if (list.kind == Value::Kind::list) {
      items = list.items;
    } else if (list.kind == Value::Kind::scalar && !trim(list.text).empty()) {
      for (std::size_t begin = 0; begin <= list.text.size();) {
        const std::size_t end = std::min(list.text.find(',', begin), list.text.size());
        Value item = list;
        item.text = trim(std::string_view(list.text).substr(begin, end - begin));
        items.push_back(item);
        begin = end + 1;
      }
    } else if (list.kind == Value::Kind::map) {
      reject(list);
    }
    for (const Value& item : items) {
      if (item.kind != Value::Kind::scalar || item.text.empty()) {
        fail_config("{}: expected {}, but an item is {}", where_, expected(field_, ref_),
                    item.kind == Value::Kind::scalar ? "empty" : describe(item));
      }
    }
    return items;
  }

  const Field& field_;
  FieldRef ref_;
  const Value& value_;
  std::string_view where_;
  bool expand_;
};

std::string range(const Field& field) {
  const bool low = std::isfinite(field.min), high = std::isfinite(field.max);
  if (low && high && field.min == field.max) return fmt::format(" {} only", field.min);
  if (low && high) {
    if (field.min_excluded) return fmt::format(" above {} and at most {}", field.min, field.max);
    return fmt::format(" from {} to {}{}", field.min, field.max, field.max_excluded ? " (excluded)" : "");
  }
  if (high) return fmt::format(" of at most {}", field.max);
  if (low) return fmt::format(" {} {}", field.min_excluded ? "above" : "of at least", field.min);
  return {};
}

struct TypeName {
  std::string operator()(const bool*) const { return "true or false"; }
  std::string operator()(const std::int64_t*) const { return "an integer"; }
  std::string operator()(const double*) const { return "a number"; }
  std::string operator()(const std::string*) const { return "a text"; }
  std::string operator()(const std::vector<std::string>*) const { return "a list of texts"; }
  std::string operator()(const std::vector<double>*) const { return "a list of numbers"; }
  std::string operator()(const json*) const { return "a text or a mapping"; }
  template <class T>
  std::string operator()(const std::optional<T>*) const {
    return (*this)(static_cast<const T*>(nullptr)) + " (or null)";
  }
};

}  // namespace

Value parse_nested(const Value& value, std::string_view where) {
  if (value.kind == Value::Kind::scalar && (value.text.starts_with('[') || value.text.starts_with('{'))) {
    if (value.text.back() != (value.text.front() == '[' ? ']' : '}')) {
      fail_config("{}: '{}' lacks its closing bracket", where, value.text);
    }
    Value inner = parse_yaml(value.text, where);
    inner.line = value.line;
    return inner;
  }
  return value;
}

std::string expected(const Field& field, FieldRef ref) {
  if (!field.choices.empty()) return fmt::format("one of {}", fmt::join(field.choices, ", "));
  std::string text = std::visit(TypeName{}, ref) + range(field);
  if (field.whole_from_one) text += ", whole from 1 on";
  if (!field.zero.empty()) text += fmt::format(", or {}", field.zero);
  return text;
}

void store(const Field& field, FieldRef ref, FieldRef initial, const Value& value, std::string_view where, bool expand) {
  std::visit(
      [&](auto* member) {
        using Member = std::remove_pointer_t<decltype(member)>;
        constexpr bool nullable = std::is_same_v<Member, std::optional<bool>> ||
                                  std::is_same_v<Member, std::optional<std::int64_t>> ||
                                  std::is_same_v<Member, std::optional<double>>;
        const bool null = value.kind == Value::Kind::null;
        if (null && nullable) {
          *member = Member{};
        } else if (null && field.zero == "null") {
          *member = Member{};
        } else if (null) {
          *member = *std::get<Member*>(initial);
        } else {
          Store(field, ref, value, where, expand).into(*member);
        }
      },
      ref);
}

}  // namespace qft::config
