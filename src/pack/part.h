// The encoded items of one source chunk, in memory and in a spill file.
#pragma once

#include "qft/pack/format.h"

#include <array>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "arrays.h"

namespace qft::pack {

/// A part without its arrays: small, and known to all ranks before assembly.
struct PartSummary {
  std::array<std::int64_t, kPackArrays> elements{};  // offset arrays without their leading 0
  std::vector<std::string> category_names;           // in order of first appearance in the chunk
  std::vector<PackSource> sources;                   // counts only
  std::vector<encode::Drops> drops;                  // per source
  std::vector<std::string> skipped;                  // "file:line: why"
  std::int64_t sequences_per_item = 0;               // the most, if it varies; 0: no items
  std::int64_t max_item_tokens = 0, labels = 0, source_bytes = 0, empty_negatives = 0;

  nlohmann::json to_json() const;
  static PartSummary from_json(const nlohmann::json& json);
};

/// Arrays as in the pack, with two differences: offsets omit the leading 0 and count from the part's beginning, and category is
/// an index into the part's own names.
struct PackPart {
  std::vector<std::int32_t> tokens;
  std::vector<std::int64_t> sequence_offsets, item_offsets, label_span_offsets;
  std::vector<std::int32_t> label_spans;  // two per span
  std::vector<std::int32_t> item_tokens, item_labels, category, dataset;
  std::vector<std::int64_t> source_index, tag_offsets;
  std::vector<std::uint8_t> tags;
  std::vector<std::uint32_t> item_crc32c;  // two per item
  std::vector<float> label_span_weights;   // one per span; empty if all are 1
  PartSummary summary;

  /// Calls f(PackArray, vector&) for each array.
  template <class Self, class F>
  static void for_each_array(Self& self, F&& f) {
    f(PackArray::tokens, self.tokens);
    f(PackArray::sequence_offsets, self.sequence_offsets);
    f(PackArray::item_offsets, self.item_offsets);
    f(PackArray::label_span_offsets, self.label_span_offsets);
    f(PackArray::label_spans, self.label_spans);
    f(PackArray::item_tokens, self.item_tokens);
    f(PackArray::item_labels, self.item_labels);
    f(PackArray::category, self.category);
    f(PackArray::dataset, self.dataset);
    f(PackArray::source_index, self.source_index);
    f(PackArray::tag_offsets, self.tag_offsets);
    f(PackArray::tags, self.tags);
    f(PackArray::item_crc32c, self.item_crc32c);
    f(PackArray::label_span_weights, self.label_span_weights);
  }

  /// Returns the index of a category in this part; adds new ones.
  std::int32_t category_number(const std::string& name);
};

/// Writes the part to `path`, complete or not at all. `key` ties it to a build: fingerprint and chunk.
void write_part(const std::filesystem::path& path, const std::string& key, PackPart& part);

/// Reads a part; throws Error if it is missing, damaged, or has another key.
PackPart read_part(const std::filesystem::path& path, const std::string& key);

}  // namespace qft::pack
