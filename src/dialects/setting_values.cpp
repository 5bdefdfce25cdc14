#include "setting_values.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

namespace qft::dialects {

std::string word_of(const Value& value) {
  if (value.kind == Value::Kind::null || (value.kind == Value::Kind::scalar && value.text.empty())) return "null";
  if (const auto flag = as_bool(value)) return *flag ? "true" : "false";
  return value.kind == Value::Kind::scalar ? value.text : "";
}

Value scalar(std::string_view text, int line) {
  if (text == "null") return Value{.line = line};
  return Value{.kind = Value::Kind::scalar, .text = std::string(text), .line = line};
}

Setting as(const Setting& setting, std::string_view key, Value value) {
  if (setting.key == key) return {setting.key, std::move(value), setting.source, setting.where, setting.typed};
  return {std::string(key), std::move(value), fmt::format("{} ({})", setting.source, setting.key), setting.where, setting.key};
}

const Setting* latest(const std::vector<Setting>& settings, std::string_view key) {
  const auto found = std::find_if(settings.rbegin(), settings.rend(), [&](const Setting& s) { return s.key == key; });
  return found == settings.rend() ? nullptr : &*found;
}

const Setting* latest_value(const std::vector<Setting>& settings, std::string_view key) {
  const Setting* found = latest(settings, key);
  return found == nullptr || word_of(found->value) == "null" ? nullptr : found;
}

}  // namespace qft::dialects
