// Selects a part of a dataset by position, in the notation of Hugging Face datasets: "train[:10%]", "train[100:-100]".
#pragma once

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

}  // namespace qft::encode
