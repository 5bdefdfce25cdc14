#include "qft/core/error.h"
#include "qft/encode/item.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include <nlohmann/json.hpp>

namespace qft::encode {
namespace {

double number_of(const nlohmann::ordered_json& value, const std::string& label, std::string_view name) {
  if (value.is_boolean()) return value.get<bool>() ? 1.0 : 0.0;
  if (value.is_number() && std::isfinite(value.get<double>())) return value.get<double>();
  fail("{} is {}, expected a number or a list of numbers: write null for a missing label", name, label);
}

}  // namespace

std::vector<double> parse_targets(const std::string& label, std::string_view name) {
  const auto json = nlohmann::ordered_json::parse(label == "True" ? "true" : label == "False" ? "false" : label, nullptr, false);
  std::vector<double> values;
  if (!json.is_array()) return {number_of(json, label.empty() ? "an empty text" : "'" + label + "'", name)};
  for (const auto& value : json) values.push_back(number_of(value, label, name));
  return values;
}

std::optional<std::vector<double>> targets_from_tags(const std::vector<std::pair<std::string, std::string>>& tags) {
  for (const auto& [name, value] : tags)
    if (name == kLabelTag) return parse_targets(value);
  return std::nullopt;
}

std::int64_t positives_of(config::SampleKind kind, std::int64_t sequences,
                          const std::vector<std::pair<std::string, std::string>>& tags) {
  const auto tag = std::ranges::find(tags, kPositivesTag, &std::pair<std::string, std::string>::first);
  require(tag != tags.end(), "an item has no tag '{}': repack its data", kPositivesTag);
  std::int64_t positives = -1;
  const char* end = tag->second.data() + tag->second.size();
  const auto [at, error] = std::from_chars(tag->second.data(), end, positives);
  const bool has_anchor = kind == config::SampleKind::texts;
  require(error == std::errc() && at == end && positives >= 0 && positives + (has_anchor ? 1 : 0) <= sequences,
          "an item of {} sequences has the tag '{}' = '{}': repack its data", sequences, kPositivesTag, tag->second);
  return positives;
}

}  // namespace qft::encode
