// Reading a pack: the contract in its attributes, and items by position.
#pragma once

#include "qft/io/file.h"
#include "qft/pack/format.h"

#include <array>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

namespace qft::pack {

/// What a run expects of a pack.
struct PackExpectation {
  std::string tokenizer_hash, template_hash;
  std::int64_t vocab_size = 0;  // of the model's embedding; the pack's tokenizer must not have more
  std::int64_t cutoff_len = 0;
};

/// An open pack. Immutable and thread-safe: items are read by pread, HDF5 is closed again after open().
class PackReader {
 public:
  /// Reads the attributes and checks shapes, sizes and the ends of the offset tables against each other.
  /// Throws Error naming the file and what is wrong with it, ConfigError for a directory, a data file or a run file.
  static std::shared_ptr<const PackReader> open(const std::filesystem::path& path);

  const std::filesystem::path& path() const { return file_.path(); }
  const PackAttributes& attributes() const { return attributes_; }
  /// attributes().fingerprint() as stored.
  const std::string& fingerprint() const { return fingerprint_; }
  std::int64_t num_items() const;
  std::int64_t num_sequences() const;
  std::int64_t num_tokens() const;
  /// Whether labels have weights: one of them counts other than 1.
  bool has_weights() const { return weighted_; }
  /// [label spans] what each label of a span counts, read at each call; empty where the pack has no weights.
  std::vector<float> span_weights() const;

  /// Item `index` with its origin, CRCs checked; throws Error naming file and item where it is damaged.
  encode::EncodedItem item(std::int64_t index) const;
  /// Where item `index` comes from, and its tags: item() without its sequences.
  encode::EncodedItem origin(std::int64_t index) const;
  /// Only what training needs, into reused memory; CRC checked.
  void read(std::int64_t index, FlatItem& item) const;

  /// [items] tokens and predictable labels of each item, read at the first call and kept.
  std::span<const std::int32_t> item_tokens() const;
  std::span<const std::int32_t> item_labels() const;

  /// [items] the number of each item's category in attributes().category_names; read at each call.
  std::vector<std::int32_t> item_categories() const;
  /// [items] the number of each item's dataset in attributes().sources; read at each call.
  std::vector<std::int32_t> item_datasets() const;

  /// [sequences] how many tokens each has; read at each call.
  std::vector<std::int64_t> sequence_tokens() const;
  /// [items] the tags of each, as tags_to_json() stores them; read at each call, without their CRCs.
  std::vector<std::string> item_tags() const;

  /// Throws ConfigError with both values and advice where this pack was made for something else.
  void check_against(const PackExpectation& expected) const;
  /// Reads every byte: all CRCs, lengths, spans, token ids, categories and counts. Throws Error naming the
  /// first bad item. `progress` gets the number of items done.
  void verify(const std::function<void(std::int64_t)>& progress = {}) const;

 private:
  struct Extent {
    std::uint64_t offset = 0, elements = 0;  // offset: in the file, bytes
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
  void read_offsets(PackArray array, std::int64_t first, std::span<std::int64_t> offsets, std::int64_t item) const;
  std::string where(std::int64_t index) const;

  io::File file_;
  PackAttributes attributes_;
  std::string fingerprint_;
  bool weighted_ = false;
  std::array<Extent, kPackArrays> extents_;
  std::unique_ptr<LengthTables> lengths_;
};

}  // namespace qft::pack
