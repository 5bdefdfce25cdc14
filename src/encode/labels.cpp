#include "qft/core/error.h"
#include "qft/encode/item.h"

#include <cmath>

#include <nlohmann/json.hpp>

namespace qft::encode {
namespace {

double number_of(const nlohmann::ordered_json& value, const std::string& label) {
  if (value.is_boolean()) return value.get<bool>() ? 1.0 : 0.0;
  if (value.is_number() && std::isfinite(value.get<double>())) return value.get<double>();
  fail("a label is {}, expected a number or a list of numbers", label);
}

}  // namespace

std::vector<double> parse_targets(const std::string& label) {
  const auto json = nlohmann::ordered_json::parse(label == "True" ? "true" : label == "False" ? "false" : label, nullptr, false);
  std::vector<double> values;
  if (!json.is_array()) return {number_of(json, label.empty() ? "an empty text" : "'" + label + "'")};
  for (const auto& value : json) values.push_back(number_of(value, label));
  return values;
}

std::optional<std::vector<double>> targets_from_tags(const std::vector<std::pair<std::string, std::string>>& tags) {
  for (const auto& [name, value] : tags)
    if (name == kLabelTag) return parse_targets(value);
  return std::nullopt;
}

}  // namespace qft::encode
