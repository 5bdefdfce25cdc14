#include "qft/config/dump.h"

#include "qft/config/bound_field.h"
#include "qft/core/error.h"

#include <utility>

#include "apply.h"

namespace qft::config {
namespace {

using nlohmann::json;

struct ToJson {
  const Field& field;
  json operator()(const bool* value) const { return *value; }
  json operator()(const std::int64_t* value) const {
    if (*value == 0 && !field.zero.empty()) return field.zero == "null" ? json() : json(field.zero);
    return *value;
  }
  json operator()(const double* value) const {
    if (*value == 0.0 && field.zero == "null") return nullptr;
    const bool is_word_alone = field.min_excluded && field.min == 0.0;  // the key does not accept 0 itself
    if (*value == 0.0 && is_word_alone && !field.zero.empty()) return field.zero;
    return *value;
  }
  json operator()(const std::string* value) const { return value->empty() ? json() : json(*value); }
  json operator()(const json* value) const { return *value; }
  template <class T>
  json operator()(const std::vector<T>* value) const {
    return value->empty() ? json() : json(*value);
  }
  template <class T>
  json operator()(const std::optional<T>* value) const {
    return *value ? json(**value) : json();
  }
};

// PyYAML reads 5e-05 as a text: numbers need a decimal point.
std::string number_text(double value) {
  std::string text = fmt::format("{}", value);
  const std::size_t exponent = text.find('e');
  if (exponent != std::string::npos && text.find('.') == std::string::npos) text.insert(exponent, ".0");
  return text;
}

}  // namespace

nlohmann::json field_value(const Field& field, FieldRef ref) {
  return std::visit(ToJson{field}, ref);
}

// JSON is valid YAML, so lists, mappings and quoted texts need no extra code.
std::string yaml_text(const json& value) {
  return value.is_number_float() ? number_text(value.get<double>()) : value.dump();
}

json to_json(const RunConfig& config) {
  RunConfig copy = config;  // visiting hands out mutable references
  json out = json::object();
  for (const BoundField& bound : bound_fields(copy)) {
    out[std::string(bound.field.name)] = field_value(bound.field, bound.ref);
  }
  return out;
}

std::string to_yaml(const RunConfig& config) {
  RunConfig copy = config;
  std::string out, group;
  for (const BoundField& bound : bound_fields(copy)) {
    if (bound.group != group) {
      out += fmt::format("{}### {}\n", out.empty() ? "" : "\n", bound.group);
      group = bound.group;
    }
    const json value = field_value(bound.field, bound.ref);
    out += fmt::format("{}: {}\n", bound.field.name, yaml_text(value));
  }
  return out;
}

RunConfig from_json(const json& object, std::string_view where) {
  RunConfig config;
  Translation own;
  for (const auto& [key, value] : parse_json(object.dump(), where).entries) {
    own.settings.push_back({key, value, std::string(where), fmt::format("{}: {}", where, key)});
  }
  apply_settings(config, std::move(own), kOwnKeysOnly, Purpose::any, false);
  return config;
}

}  // namespace qft::config
