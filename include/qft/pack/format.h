// The pack file: an HDF5 file of encoded items that any HDF5 reader opens and ranks read by pread.
//
//   dataset             type, shape   contents
//   tokens              i32 [T]       all sequences end to end
//   sequence_offsets    i64 [S+1]     into tokens
//   item_offsets        i64 [I+1]     into sequences
//   label_span_offsets  i64 [S+1]     into label_spans
//   label_spans         i32 [N,2]     [begin, end) inside the sequence
//   item_tokens         i32 [I]       tokens of all of an item's sequences
//   item_labels         i32 [I]       label tokens that can be predicted (none at a sequence's position 0)
//   category            i32 [I]       into the attribute category_names
//   dataset             i32 [I]       into the attribute sources
//   source_index        i64 [I]       record number in its dataset
//   tag_offsets         i64 [I+1]     into tags
//   tags                u8  [G]       a JSON object an item, without bytes where there is none
//   item_crc32c         u32 [I,2]     of the sequences with their spans; of category, dataset, index and tags
//   label_span_weights  f32 [N]       what each label of a span counts, above 0; in version 2 only
//   frame_crc32c        u32 [1]       of every byte of the file outside of these datasets: headers, attributes, gaps
//
// All are contiguous and unchunked; the root's attributes are in PackAttributes. A pack has version 2 where some label counts
// other than 1, else 1.
#pragma once

#include "qft/encode/item.h"

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

namespace qft::pack {

/// The datasets above, in that order, but for the frame's.
enum class PackArray : std::uint8_t {
  tokens,
  sequence_offsets,
  item_offsets,
  label_span_offsets,
  label_spans,
  item_tokens,
  item_labels,
  category,
  dataset,
  source_index,
  tag_offsets,
  tags,
  item_crc32c,
  label_span_weights
};
inline constexpr std::size_t kPackArrays = 14;

/// Of a pack without and with weights of labels.
inline constexpr std::int64_t kPackFormatVersion = 1, kWeightedPackVersion = 2;
inline constexpr std::string_view kPackFormatName = "qft-pack";

/// A file of a dataset, for messages: the dataset's hash says whether it is the same.
struct PackFile {
  std::string name;  // without its folder
  std::int64_t bytes = 0;
};

/// A dataset that went into a pack.
struct PackSource {
  std::string name;
  std::string hash;               // of the source files' contents
  std::int64_t records = 0;       // read: items + dropped (pre-training may join records into items)
  std::int64_t items = 0;         // kept
  std::int64_t dropped = 0;       // without labels, empty, or invalid
  std::int64_t truncated = 0;     // cut to cutoff_len
  std::vector<PackFile> files{};  // in order; none in packs of earlier versions
};

/// The contract that a pack carries: how its tokens were made.
struct PackAttributes {
  std::string tokenizer_hash, template_hash, template_name;
  std::string stage;  // "pt" | "sft" | "rm" ...
  std::int64_t vocab_size = 0;
  std::int64_t cutoff_len = 0;
  nlohmann::json options = nlohmann::json::object();  // every option that shaped the items
  // As template_options() of pack/options.h gives them; empty in older packs. template_hash covers them.
  nlohmann::json template_options = nlohmann::json::object();
  std::vector<PackSource> sources;  // the builder fills in the counts
  // Filled in by the builder:
  std::vector<std::string> category_names;  // in order of first appearance
  std::int64_t sequences_per_item = 1;      // 1, or 2 for pairs
  std::int64_t max_item_tokens = 0;

  /// XXH3-128 of what is known before the items are made (the sources without their counts, and no field that
  /// the builder fills in): equal inputs, equal packs.
  std::string fingerprint() const;
};

/// An item as it lies in the file.
struct FlatItem {
  std::vector<std::int32_t> ids;            // all sequences end to end
  std::vector<std::int64_t> sequence_ends;  // [sequences] into ids
  std::vector<std::int64_t> span_ends;      // [sequences] into spans
  std::vector<encode::Span> spans;          // positions inside their sequence
  std::vector<float> span_weights = {};     // [spans]; empty: the pack has none

  /// CRC32C of the sequences with their boundaries and spans, and with their weights where one is not 1: column 0 of item_crc32c.
  std::uint32_t crc() const;
};

/// Column 1 of item_crc32c.
std::uint32_t origin_crc(std::string_view category, std::int32_t dataset, std::int64_t source_index, std::string_view tags);

/// Tags as the JSON object stored ("" for none), and back, in their order.
std::string tags_to_json(const std::vector<std::pair<std::string, std::string>>& tags);
std::vector<std::pair<std::string, std::string>> tags_from_json(std::string_view text);

}  // namespace qft::pack
