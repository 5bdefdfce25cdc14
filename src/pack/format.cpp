#include "qft/pack/format.h"

#include "qft/core/error.h"
#include "qft/core/hash.h"

#include <algorithm>

namespace qft::pack {

std::uint32_t FlatItem::crc() const {
  std::uint32_t crc = crc32c(ids.data(), ids.size() * sizeof(ids[0]));
  crc = crc32c(sequence_ends.data(), sequence_ends.size() * sizeof(sequence_ends[0]), crc);
  crc = crc32c(span_ends.data(), span_ends.size() * sizeof(span_ends[0]), crc);
  crc = crc32c(spans.data(), spans.size() * sizeof(spans[0]), crc);
  if (std::ranges::all_of(span_weights, [](float weight) { return weight == 1; })) return crc;
  return crc32c(span_weights.data(), span_weights.size() * sizeof(span_weights[0]), crc);
}

std::uint32_t origin_crc(std::string_view category, std::int32_t dataset, std::int64_t source_index, std::string_view tags) {
  std::uint32_t crc = crc32c(category.data(), category.size());
  crc = crc32c(&dataset, sizeof dataset, crc);
  crc = crc32c(&source_index, sizeof source_index, crc);
  return crc32c(tags.data(), tags.size(), crc);
}

std::string tags_to_json(const std::vector<std::pair<std::string, std::string>>& tags) {
  if (tags.empty()) return {};
  nlohmann::ordered_json object = nlohmann::ordered_json::object();
  for (const auto& [name, value] : tags) object[name] = value;
  return object.dump();
}

std::vector<std::pair<std::string, std::string>> tags_from_json(std::string_view text) {
  std::vector<std::pair<std::string, std::string>> tags;
  if (text.empty()) return tags;
  const auto object = nlohmann::ordered_json::parse(text, nullptr, false);
  require(object.is_object(), "tags are not a JSON object: '{}'", text.substr(0, 80));
  for (const auto& [name, value] : object.items()) {
    require(value.is_string(), "tag '{}' is not a string", name);
    tags.emplace_back(name, value.get<std::string>());
  }
  return tags;
}

}  // namespace qft::pack
