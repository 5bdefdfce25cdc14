// Reads a pack: the contract in its attributes, and items by position.
#pragma once

#include "qft/io/file.h"
#include "qft/pack/format.h"

#include <array>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace qft::pack {

/// A run's requirements for a pack.
struct PackExpectation {
  std::string tokenizer_hash, template_hash;
  std::int64_t vocab_size = 0;  // the model embedding's size; the pack's tokenizer must not have more tokens
  std::int64_t cutoff_len = 0;
};

/// An open pack. Immutable and thread-safe: items are read with pread; HDF5 is closed at the end of open().
class PackReader {
 public:
  /// Reads the attributes and checks shapes, sizes and the ends of the offset tables against each other. Throws Error with the
  /// file and its fault, ConfigError for a directory, a data file or a run file.
  static std::shared_ptr<const PackReader> open(const std::filesystem::path& path);

  const std::filesystem::path& path() const { return file_.path(); }
  const PackAttributes& attributes() const { return attributes_; }
  /// The stored value of attributes().fingerprint().
  const std::string& fingerprint() const { return fingerprint_; }
  std::int64_t num_items() const;
  std::int64_t num_sequences() const;
  std::int64_t num_tokens() const;
  /// True if labels have weights: at least one is not 1.
  bool has_weights() const { return weighted_; }
  /// [label spans] Weight of each label in a span, read at each call; empty if the pack has no weights.
  std::vector<float> span_weights() const;

  /// Returns item `index` with its origin after a check of its CRCs; throws Error with file and item if it is damaged.
  encode::EncodedItem item(std::int64_t index) const;
  /// Returns the origin of item `index` and its tags: item() without its sequences.
  encode::EncodedItem origin(std::int64_t index) const;
  /// Reads only the parts that training needs, into reused memory; checks the CRC.
  void read(std::int64_t index, FlatItem& item) const;

  /// [items] Tokens and predictable labels of each item, read at the first call and kept.
  std::span<const std::int32_t> item_tokens() const;
  std::span<const std::int32_t> item_labels() const;

  /// [items] Index of each item's category in attributes().category_names; read at each call.
  std::vector<std::int32_t> item_categories() const;
  /// [items] Index of each item's dataset in attributes().sources; read at each call.
  std::vector<std::int32_t> item_datasets() const;

  /// [sequences] Number of tokens per sequence, at least 1; read at each call. Throws ConfigError for a damaged table.
  std::vector<std::int64_t> sequence_tokens() const;
  /// [items + 1] Number of each item's first sequence; rises with each item; read at each call. Throws ConfigError for a damaged
  /// table.
  std::vector<std::int64_t> item_offsets() const;
  /// [items] Tags of each item, as stored by tags_to_json(); read at each call, without a CRC check.
  std::vector<std::string> item_tags() const;

  /// Throws ConfigError with both values and advice if this pack was made for something else.
  void check_against(const PackExpectation& expected) const;
  /// Reads every byte and checks all CRCs, lengths, spans, token ids, categories and counts. Throws Error with the first bad
  /// item. `progress` receives the number of finished items.
  void verify(const std::function<void(std::int64_t)>& progress = {}) const;

 private:
  struct Extent {
    std::uint64_t offset = 0, elements = 0;  // offset in the file, in bytes
  };
  struct LengthTables {
    std::once_flag once;
    std::vector<std::int32_t> tokens, labels;
  };
  explicit PackReader(io::File file);
  void read_header();
  void check_shapes() const;
  void verify_frame() const;
  void verify_counts(const std::vector<std::int64_t>& items_found) const;
  const LengthTables& lengths() const;
  const Extent& extent(PackArray array) const { return extents_[static_cast<std::size_t>(array)]; }
  std::vector<std::int64_t> all_offsets(PackArray array) const;
  std::vector<std::int32_t> numbers(PackArray array, std::string_view what, std::size_t names) const;
  template <class T>
  void read_range(PackArray array, std::int64_t first, std::span<T> values) const;
  void read_offsets(PackArray array, std::int64_t first, std::span<std::int64_t> offsets, std::optional<std::int64_t> item) const;
  std::string where(std::int64_t index) const;

  io::File file_;
  PackAttributes attributes_;
  std::string fingerprint_;
  bool weighted_ = false;
  std::array<Extent, kPackArrays> extents_;
  std::unique_ptr<LengthTables> lengths_;
};

}  // namespace qft::pack
