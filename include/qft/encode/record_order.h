// The order of records over all datasets, before encoding: sampling and mixing, and the selection of a part of a dataset by
// position in the notation of Hugging Face datasets: "train[:10%]", "train[100:-100]".
#pragma once

#include "qft/core/numpy_random.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace qft::encode {

struct RecordRange {
  std::int64_t from = 0, to = 0;  // half open, 0 <= from <= to <= records
  std::int64_t size() const { return to > from ? to - from : 0; }
  bool operator==(const RecordRange&) const = default;
};

/// The parts that a `split` key names, joined by "+". Bounds are records or percents; negative bounds count from the end.
/// Percents round to the nearest record (half to even); with "(pct1_dropremainder)" they count whole hundredths, as in
/// datasets.ReadInstruction.
class Split {
 public:
  /// Selects everything.
  Split() = default;
  /// Throws ConfigError, beginning with `where`, if the notation is invalid or names a split other than train: files have no
  /// other.
  Split(const std::string& text, const std::string& where);

  /// Returns the parts for a dataset with this number of records, in order. Throws ConfigError if they hold no record.
  std::vector<RecordRange> ranges(std::int64_t records) const;

  /// The text as written; "train" for everything.
  const std::string& text() const { return text_; }

 private:
  struct Part {
    std::optional<std::int64_t> from, to;
    bool percent = false, whole_hundredths = false;
    RecordRange range(std::int64_t records) const;
  };
  static Part parse_part(const std::string& text, const std::string& where);

  std::string text_ = "train", where_;
  std::vector<Part> parts_{Part{}};
};

struct RecordRef {
  std::int32_t dataset = 0;
  std::int64_t record = 0;
  bool operator==(const RecordRef&) const = default;
};

struct MixOptions {
  std::string strategy = "concat";    // or interleave_under, interleave_over, interleave_once
  std::vector<double> probabilities;  // one per dataset, for interleaving; empty: they take turns
  std::uint64_t seed = 42;
};

/// The part of a dataset that is used.
struct DatasetExtent {
  std::int64_t records = 0;
  std::optional<std::int64_t> num_samples;  // drawn with the seed; above `records`, all are taken and then random ones repeat
  std::optional<std::int64_t> max_samples;  // keeps only the first ones drawn
  std::vector<RecordRange> parts = {};      // ranges of the file that form these records; empty: the first `records`

  std::int64_t taken() const {
    const std::int64_t drawn = num_samples.value_or(records);
    return std::min(drawn, max_samples.value_or(drawn));
  }
};

/// The merged datasets as one list, in the same order as LLaMA-Factory's draws with the same seed. Immutable and thread-safe;
/// uses memory only to sample or interleave. The strategies are those of Hugging Face's datasets.interleave_datasets: under
/// stops when the first dataset is used up, over repeats the others until the last is used up, once skips datasets that are
/// used up.
class RecordOrder {
 public:
  /// Throws ConfigError if probabilities do not sum to 1 or if the mix would never end.
  RecordOrder(const std::vector<DatasetExtent>& datasets, const MixOptions& mix);

  std::int64_t size() const { return size_; }
  RecordRef at(std::int64_t position) const;

 private:
  struct Draw {
    std::int64_t size = 0;
    std::vector<std::int64_t> records;  // empty: 0 .. size-1
    std::vector<RecordRange> parts;
    std::int64_t at(std::int64_t i) const;
  };
  static Draw draw(const DatasetExtent& extent, numpy::LegacyRandom& random);
  void interleave(const MixOptions& mix);

  std::vector<Draw> draws_;
  std::vector<RecordRef> interleaved_;  // record: index into the dataset's draw
  bool is_interleaved_ = false;
  std::int64_t size_ = 0;
};

}  // namespace qft::encode
