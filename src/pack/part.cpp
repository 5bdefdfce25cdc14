#include "part.h"

#include "qft/core/error.h"
#include "qft/core/hash.h"
#include "qft/io/file.h"
#include "qft/io/storage.h"

#include <algorithm>

namespace qft::pack {

using nlohmann::json;

namespace {

constexpr std::string_view kMagic = "qftpart1";
constexpr std::size_t kChecksumBytes = 32;
constexpr std::uint64_t kMaxHeader = std::uint64_t{1} << 28;

}  // namespace

json PartSummary::to_json() const {
  json counts = json::array(), left_out = json::array();
  for (const PackSource& s : sources) counts.push_back({s.records, s.items, s.dropped, s.truncated});
  for (const encode::Drops& d : drops) left_out.push_back({d.counts, d.first});
  return {{"elements", elements},
          {"category_names", category_names},
          {"sources", counts},
          {"drops", left_out},
          {"skipped", skipped},
          {"sequences_per_item", sequences_per_item},
          {"max_item_tokens", max_item_tokens},
          {"labels", labels},
          {"source_bytes", source_bytes},
          {"empty_negatives", empty_negatives}};
}

PartSummary PartSummary::from_json(const json& j) {
  PartSummary summary;
  j.at("elements").get_to(summary.elements);
  j.at("category_names").get_to(summary.category_names);
  for (const json& s : j.at("sources")) summary.sources.push_back({"", "", s.at(0), s.at(1), s.at(2), s.at(3)});
  for (const json& d : j.at("drops")) summary.drops.push_back({d.at(0), d.at(1)});
  j.at("skipped").get_to(summary.skipped);
  j.at("sequences_per_item").get_to(summary.sequences_per_item);
  j.at("max_item_tokens").get_to(summary.max_item_tokens);
  j.at("labels").get_to(summary.labels);
  j.at("source_bytes").get_to(summary.source_bytes);
  j.at("empty_negatives").get_to(summary.empty_negatives);
  return summary;
}

std::int32_t PackPart::category_number(const std::string& name) {
  auto& names = summary.category_names;
  // Search from the newest: neighbouring records mostly share their category.
  const auto found = std::find(names.rbegin(), names.rend(), name);
  if (found != names.rend()) return static_cast<std::int32_t>(names.rend() - found) - 1;
  static_cast<void>(json(name).dump());  // throws for invalid UTF-8, which the attribute cannot hold
  names.push_back(name);
  return static_cast<std::int32_t>(names.size()) - 1;
}

void write_part(const std::filesystem::path& path, const std::string& key, PackPart& part) {
  PackPart::for_each_array(part, [&](PackArray array, auto& values) {
    part.summary.elements[index_of(array)] = static_cast<std::int64_t>(values.size());
  });
  const std::string header = json{{"key", key}, {"summary", part.summary.to_json()}}.dump();
  const std::uint64_t header_bytes = header.size();
  io::Storage& storage = io::posix_storage();
  const std::filesystem::path temp = path.parent_path() / (std::string(io::kTempPrefix) + path.filename().string());
  try {
    const auto file = storage.create(temp);
    Hasher hasher;
    const auto append = [&](const void* data, std::uint64_t bytes) {
      hasher.update(data, bytes);
      file->append(data, bytes);
    };
    append(kMagic.data(), kMagic.size());
    append(&header_bytes, sizeof header_bytes);
    append(header.data(), header.size());
    PackPart::for_each_array(part, [&](PackArray, auto& values) { append(values.data(), values.size() * sizeof(values[0])); });
    file->append(hasher.hex().data(), kChecksumBytes);
    file->close();  // not synced: a part that is truncated by a crash fails its checksum and is made again
    storage.rename(temp, path);
  } catch (...) {
    std::error_code ignored;
    std::filesystem::remove(temp, ignored);
    throw;
  }
}

PackPart read_part(const std::filesystem::path& path, const std::string& key) {
  const io::File file = io::File::open_read(path);
  Hasher hasher;
  std::uint64_t offset = 0;
  const auto read = [&](void* data, std::uint64_t bytes) {
    file.pread(offset, data, bytes);
    hasher.update(data, bytes);
    offset += bytes;
  };
  std::string magic(kMagic.size(), '\0');
  std::uint64_t header_bytes = 0;
  read(magic.data(), magic.size());
  read(&header_bytes, sizeof header_bytes);
  require(magic == kMagic && header_bytes <= kMaxHeader, "'{}' is not a part of a pack", path.string());
  std::string text(header_bytes, '\0');
  read(text.data(), text.size());
  const json header = json::parse(text, nullptr, false);
  require(header.is_object() && header.value("key", "") == key, "'{}' is a part of another pack", path.string());

  PackPart part;
  try {
    part.summary = PartSummary::from_json(header.at("summary"));
  } catch (const json::exception& e) {
    fail("'{}' is damaged: {}", path.string(), e.what());
  }
  std::uint64_t expected = offset + kChecksumBytes;
  PackPart::for_each_array(part, [&](PackArray array, auto& values) {
    expected += static_cast<std::uint64_t>(part.summary.elements[index_of(array)]) * sizeof(values[0]);
  });
  require(file.size() == expected, "'{}' has {} bytes instead of {}", path.string(), file.size(), expected);
  PackPart::for_each_array(part, [&](PackArray array, auto& values) {
    values.resize(static_cast<std::size_t>(part.summary.elements[index_of(array)]));
    read(values.data(), values.size() * sizeof(values[0]));
  });
  std::string checksum(kChecksumBytes, '\0');
  file.pread(offset, checksum.data(), checksum.size());
  require(checksum == hasher.hex(), "'{}' is damaged: checksum {} stored, {} found", path.string(), checksum, hasher.hex());
  return part;
}

}  // namespace qft::pack
