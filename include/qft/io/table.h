// Parquet and Arrow files, by libqft_arrow.so, which is loaded when the first one is opened.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace qft::io {

/// Rows as JSON objects.
struct TableRows {
  std::string text;
  std::vector<std::size_t> ends;  // of each row in text
  bool left_out = false;          // null members in the description of tools or calls were; the log says so
  std::string_view row(std::size_t i) const {
    const std::size_t begin = i == 0 ? 0 : ends[i - 1];
    return std::string_view(text).substr(begin, ends[i] - begin);
  }
};

/// An open table. Immutable and thread-safe.
class TableFile {
 public:
  /// Throws Error where the file is damaged, and where the plug-in or Arrow's library is not there: what was looked for,
  /// where, and what to do.
  explicit TableFile(const std::filesystem::path& path);

  std::int64_t rows() const { return starts_.back(); }
  std::size_t groups() const { return starts_.size() - 1; }
  /// The first row of each group, and the number of rows. [groups + 1]
  const std::vector<std::int64_t>& starts() const { return starts_; }
  /// All rows of a group: a missing value is null, as the file's own types say, a map is an object; a value that JSON cannot hold
  /// is a text of qft/core/unreadable.h. Throws Error naming the file.
  TableRows read(std::size_t group) const;

 private:
  std::filesystem::path path_;
  std::shared_ptr<void> table_;
  std::vector<std::int64_t> starts_{0};
};

}  // namespace qft::io
