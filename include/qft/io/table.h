// Parquet and Arrow files, read with libqft_arrow.so, which is loaded when the first file is opened.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace qft::io {

/// Table rows as JSON objects.
struct TableRows {
  std::string text;
  std::vector<std::size_t> ends;  // end of each row in text
  bool left_out = false;          // null members in descriptions of tools or calls were left out; the log says so
  std::string_view row(std::size_t i) const {
    const std::size_t begin = i == 0 ? 0 : ends[i - 1];
    return std::string_view(text).substr(begin, ends[i] - begin);
  }
};

/// An open table. Immutable and thread-safe.
class TableFile {
 public:
  /// Throws Error if the file is damaged, or if the plug-in or Arrow's library is missing. The message names the missing file,
  /// the searched folders and the remedy.
  explicit TableFile(const std::filesystem::path& path);

  std::int64_t rows() const { return starts_.back(); }
  std::size_t groups() const { return starts_.size() - 1; }
  /// First row of each group, then the number of rows. [groups + 1]
  const std::vector<std::int64_t>& starts() const { return starts_; }
  /// Returns all rows of a group. A missing value is null, other values keep the file's types, a map becomes an object; a value
  /// that JSON cannot hold becomes a marked text (qft/core/json_text.h). Throws Error with the file.
  TableRows read(std::size_t group) const;

 private:
  std::filesystem::path path_;
  std::shared_ptr<void> table_;
  std::vector<std::int64_t> starts_{0};
};

}  // namespace qft::io
