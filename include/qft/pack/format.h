// The pack file: an HDF5 file of encoded items, which any HDF5 reader can open and ranks read with pread.
//
//   dataset             type, shape   contents
//   tokens              i32 [T]       all sequences end to end
//   sequence_offsets    i64 [S+1]     index into tokens
//   item_offsets        i64 [I+1]     index into sequences
//   label_span_offsets  i64 [S+1]     index into label_spans
//   label_spans         i32 [N,2]     [begin, end) inside the sequence
//   item_tokens         i32 [I]       tokens of all sequences in the item
//   item_labels         i32 [I]       label tokens that can be predicted (none at a sequence's position 0)
//   category            i32 [I]       index into the attribute category_names
//   dataset             i32 [I]       index into the attribute sources
//   source_index        i64 [I]       record number in its dataset
//   tag_offsets         i64 [I+1]     index into tags
//   tags                u8  [G]       one JSON object per item; no bytes for an item without tags
//   item_crc32c         u32 [I,2]     CRC of the sequences with their spans; CRC of category, dataset, index and tags
//   label_span_weights  f32 [N]       weight of each label in a span, above 0; in version 2 only
//   frame_crc32c        u32 [1]       CRC of all bytes of the file outside these datasets: headers, attributes, gaps
//
// All are contiguous and unchunked; PackAttributes holds the root's attributes. A pack has version 2 if some label has a weight
// other than 1, version 3 if its items may have different numbers of sequences (then no label has a weight), otherwise version 1.
#pragma once

#include "qft/config/stages.h"
#include "qft/encode/item.h"

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

namespace qft::pack {

/// The datasets above in that order, without frame_crc32c.
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

/// Versions of a pack without and with label weights, and of a pack with varying numbers of sequences.
inline constexpr std::int64_t kPackFormatVersion = 1, kWeightedPackVersion = 2, kVaryingPackVersion = 3;
inline constexpr std::string_view kPackFormatName = "qft-pack";

/// A file of a dataset, for messages only: the dataset's hash identifies the contents.
struct PackFile {
  std::string name;  // without its folder
  std::int64_t bytes = 0;
};

/// A dataset that went into a pack.
struct PackSource {
  std::string name;
  std::string hash;               // hash of the source files' contents
  std::int64_t records = 0;       // records read: items + dropped (pre-training may join records into items)
  std::int64_t items = 0;         // items kept
  std::int64_t dropped = 0;       // without labels, empty, or invalid
  std::int64_t truncated = 0;     // cut to cutoff_len
  std::vector<PackFile> files{};  // in order; empty for packs of earlier versions
};

/// The contract of a pack: everything that determined its tokens.
struct PackAttributes {
  std::string tokenizer_hash, template_hash, template_name;
  std::string stage;  // "pt" | "sft" | "rm" ...
  std::int64_t vocab_size = 0;
  std::int64_t cutoff_len = 0;
  nlohmann::json options = nlohmann::json::object();  // every option that shaped the items
  // From template_options() of pack/options.h; empty in older packs. template_hash covers them.
  nlohmann::json template_options = nlohmann::json::object();
  std::vector<PackSource> sources;  // the builder fills in the counts
  // Filled in by the builder:
  std::vector<std::string> category_names;  // in order of first appearance
  std::int64_t sequences_per_item = 1;      // 1, or 2 for pairs; 0: it varies
  std::int64_t max_item_sequences = 1;
  std::int64_t max_item_tokens = 0;
  // Set before building: items may have different numbers of sequences. The file states it as sequences_per_item 0.
  bool varying_sequences = false;

  /// Returns the row of `stage`. Throws ConfigError if this version of qft has no such stage.
  const config::Stage& stage_row() const { return config::stage_of(stage); }
  /// Returns the XXH3-128 of everything known before the items are made: the sources without their counts, and no field that the
  /// builder fills in. Equal inputs give equal packs.
  std::string fingerprint() const;
};

/// An item in the layout of the file.
struct FlatItem {
  std::vector<std::int32_t> ids;            // all sequences end to end
  std::vector<std::int64_t> sequence_ends;  // [sequences] index into ids
  std::vector<std::int64_t> span_ends;      // [sequences] index into spans
  std::vector<encode::Span> spans;          // positions within their sequence
  std::vector<float> span_weights = {};     // [spans]; empty if the pack has no weights
  std::int64_t first_sequence = 0;          // number of its first sequence in the pack; set by the reader

  /// Returns column 0 of item_crc32c: CRC32C of the sequences with boundaries and spans, and with weights if one is not 1.
  std::uint32_t crc() const;
};

/// Returns column 1 of item_crc32c.
std::uint32_t origin_crc(std::string_view category, std::int32_t dataset, std::int64_t source_index, std::string_view tags);

/// Converts tags to the stored JSON object ("" for no tags) and back, keeping their order.
std::string tags_to_json(const std::vector<std::pair<std::string, std::string>>& tags);
std::vector<std::pair<std::string, std::string>> tags_from_json(std::string_view text);

}  // namespace qft::pack
