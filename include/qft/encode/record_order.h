// Which records of which dataset follow each other: sampling and mixing, before anything is encoded.
#pragma once

#include "qft/core/numpy_random.h"
#include "qft/encode/split.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace qft::encode {

struct RecordRef {
  std::int32_t dataset = 0;
  std::int64_t record = 0;
  bool operator==(const RecordRef&) const = default;
};

struct MixOptions {
  std::string strategy = "concat";    // or interleave_under, interleave_over, interleave_once
  std::vector<double> probabilities;  // of each dataset, for interleaving; empty: they take turns
  std::uint64_t seed = 42;
};

/// How much of a dataset is taken.
struct DatasetExtent {
  std::int64_t records = 0;
  std::optional<std::int64_t> num_samples;  // drawn by the seed; above `records` all are taken, then any again
  std::optional<std::int64_t> max_samples;  // the first so many of what was drawn
  std::vector<RecordRange> parts = {};      // which of the file's records these are; empty: the first `records`

  std::int64_t taken() const {
    const std::int64_t drawn = num_samples.value_or(records);
    return std::min(drawn, max_samples.value_or(drawn));
  }
};

/// The merged datasets as one list, in the order that LLaMA-Factory's draws by the same seed have. Immutable
/// and thread-safe; takes memory only where it samples or interleaves. The strategies are those of
/// datasets.interleave_datasets of Hugging Face: under stops when the first dataset is used up, over repeats
/// the others until the last is, once skips those that are used up.
class RecordOrder {
 public:
  /// Throws ConfigError where probabilities do not sum to 1 or would never end.
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
