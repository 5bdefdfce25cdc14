#include "qft/data/pack_inputs.h"

#include "qft/core/error.h"
#include "qft/core/hash.h"

#include <algorithm>

namespace qft::data {

using nlohmann::json;

namespace {

/// "cutoff_len 128 -> 64" of each value that differs; contents as such, not by their hashes.
std::string changes(const json& before, const json& now) {
  const json a = before.flatten(), b = now.flatten();
  std::string text;
  const auto add = [&](const std::string& key, const json& was, const json& is) {
    if (was == is) return;
    std::string name = key.substr(1);
    std::replace(name.begin(), name.end(), '/', '.');
    if (name.starts_with("options.")) name.erase(0, 8);
    const bool hash = name.ends_with("hash");
    if (hash) name.erase(name.size() - 5);
    text += fmt::format("{}{}", text.empty() ? "" : ", ", hash ? "the contents of " + name : fmt::format("{} {} -> {}", name, was.dump(), is.dump()));
  };
  for (const auto& [key, value] : b.items()) add(key, a.value(key, json()), value);
  for (const auto& [key, value] : a.items())
    if (!b.contains(key)) add(key, value, json());
  return text;
}

}  // namespace

json pack_inputs(const PackAttributes& a) {
  json inputs = {{"format", kPackFormatName},
                 {"format_version", kPackFormatVersion},
                 {"tokenizer_hash", a.tokenizer_hash},
                 {"template_hash", a.template_hash},
                 {"template", a.template_name},
                 {"stage", a.stage},
                 {"vocab_size", a.vocab_size},
                 {"cutoff_len", a.cutoff_len},
                 {"options", a.options},
                 {"sources", json::array()}};
  for (const PackSource& source : a.sources)
    inputs["sources"].push_back({{"name", source.name}, {"hash", source.hash}});
  return inputs;
}

std::string PackAttributes::fingerprint() const { return hash_hex(pack_inputs(*this).dump()); }

void require_same_pack(const json& position, const PackAttributes& attributes) {
  const json before = position.value("pack", json());
  if (before == attributes.fingerprint()) return;
  const std::string changed =
      position.contains("made_of") ? changes(position["made_of"], pack_inputs(attributes))
                                   : fmt::format("the pack's fingerprint {} -> {}", before.dump(), attributes.fingerprint());
  fail_config("cannot resume: the data is not that of the checkpoint: {}; set it back, or start a new run in another output_dir", changed);
}

std::uint32_t FlatItem::crc() const {
  std::uint32_t crc = crc32c(ids.data(), ids.size() * sizeof(ids[0]));
  crc = crc32c(sequence_ends.data(), sequence_ends.size() * sizeof(sequence_ends[0]), crc);
  crc = crc32c(span_ends.data(), span_ends.size() * sizeof(span_ends[0]), crc);
  return crc32c(spans.data(), spans.size() * sizeof(spans[0]), crc);
}

std::uint32_t origin_crc(std::string_view category, std::int32_t dataset, std::int64_t source_index,
                         std::string_view tags) {
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

}  // namespace qft::data
