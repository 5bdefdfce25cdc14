// Finds the records of a dataset's files without parsing them, and reads them in constant memory. Records of csv files and
// tables (Parquet, Arrow) become JSON objects.
#pragma once

#include "qft/core/hash.h"
#include "qft/io/file.h"
#include "qft/io/table.h"

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace qft::encode {

/// The text and place of a record: a JSON object, or a line of a .txt file. The text is valid until the scanner or cursor reads
/// on.
struct RecordText {
  std::string_view text;
  const std::filesystem::path* file = nullptr;
  std::int64_t line = 0;    // line of the first character, from 1; 0 in a table
  std::int64_t number = 0;  // index in a JSON array or a table, from 1; 0 if every record is on a separate line
  std::int64_t byte = 0;    // place of the first character in the file, from 1

  /// Formats "data/alpaca.jsonl:17", in an array "data/alpaca.json:1: record 17, byte 5123", in a table "data/alpaca.parquet:
  /// row 17".
  std::string where() const;
};

/// How records are laid out in a file.
enum class RecordLayout {
  json_lines,  // one value per line; blank lines are ignored
  json_array,  // the elements of one array, spread over any lines
  text_lines,  // every line, including empty ones
  csv_rows,    // the first row names the columns; all values are texts
};

/// Chooses by the file's name and the first character of its bytes (after a byte order mark).
RecordLayout layout_of(const std::filesystem::path& file, std::string_view bytes);

/// Throws Error if these bytes of a file are not text: a Git LFS pointer, UTF-16, a compressed file.
void require_text(std::string_view bytes, const std::filesystem::path& file);

/// Scans the bytes of one file, from the start of any record.
class RecordScanner {
 public:
  RecordScanner(std::string_view bytes, RecordLayout layout, const std::filesystem::path& file);

  /// Continues at `offset`, which came from offset() of a scanner of the same file after `records` records.
  void seek(std::size_t offset, std::int64_t line, std::int64_t records);
  /// Reads the next record; returns false at the end. Throws Error with file and line if a JSON array is malformed.
  bool next(RecordText& record);
  std::size_t offset() const { return offset_; }
  std::int64_t line() const { return line_; }

 private:
  bool next_line(RecordText& record);
  bool next_element(RecordText& record);
  bool next_row(RecordText& record);
  void skip_space();
  std::size_t end_of_object(std::size_t begin) const;
  std::size_t end_of_string(std::size_t begin) const;
  [[noreturn]] void fail_here(std::string_view what) const;

  std::string_view bytes_;
  RecordLayout layout_;
  const std::filesystem::path& file_;
  std::size_t offset_ = 0;
  std::int64_t line_ = 1;
  std::int64_t records_ = 0;  // before offset_
  bool closed_ = false;       // the end of the array was read
  // For csv files: the columns, the offset after their line, and the last row as fields and as a record.
  std::vector<std::string> columns_, fields_;
  std::size_t first_row_ = 0;
  std::string row_;
};

class TableCache;

/// Passes the first `count` records of a file (fewer if it has fewer) to `body`. Throws Error as RecordSource does.
void for_first_records(const std::filesystem::path& file, std::int64_t count, const std::function<void(const RecordText&)>& body);

/// The records of one dataset, numbered across its files. Immutable and thread-safe.
class RecordSource {
 public:
  /// Maps the files, reads them once, and notes the start of every few hundredth record. Throws Error if a file cannot be read,
  /// a JSON array is broken, or there is no record at all.
  static std::shared_ptr<const RecordSource> open(const std::vector<std::filesystem::path>& files);

  std::int64_t size() const { return size_; }
  /// XXH3-128 over the contents of all files, in order.
  const std::string& hash() const { return hash_; }
  /// Total size of all files.
  std::int64_t bytes() const;
  /// True for .txt: a record is text, not JSON.
  bool is_text() const { return files_.front().layout == RecordLayout::text_lines; }
  /// The files that are not empty, in order, with their sizes in bytes.
  std::vector<std::pair<std::filesystem::path, std::int64_t>> files() const;

 private:
  friend class RecordCursor;
  struct Mark {
    std::size_t offset;
    std::int64_t line;
  };
  struct SourceFile {
    std::filesystem::path path;
    io::Mapping mapping;
    RecordLayout layout = RecordLayout::json_lines;
    std::int64_t first = 0, records = 0;
    std::vector<Mark> marks;                 // start of record first + i * kStride
    std::shared_ptr<TableCache> table = {};  // Parquet, Arrow: replaces layout and marks

    std::string_view bytes() const;
    /// Lets the system reclaim the memory of bytes [begin, end).
    void release(std::size_t begin, std::size_t end) const;
  };
  void index(SourceFile& file, Hasher& hasher);
  static constexpr std::int64_t kStride = 256;

  std::vector<SourceFile> files_;
  std::int64_t size_ = 0;
  std::string hash_;
};

/// Reads records by index, fast if the indices ascend. Belongs to one thread; the source must outlive it.
class RecordCursor {
 public:
  explicit RecordCursor(const RecordSource& source) : source_(source) {}
  RecordCursor(const RecordCursor&) = delete;
  RecordCursor& operator=(const RecordCursor&) = delete;
  ~RecordCursor();

  /// Returns record `index` in [0, size()).
  RecordText at(std::int64_t index);

 private:
  const RecordSource& source_;
  RecordText row_of_table(std::int64_t row);
  void leave_file();

  std::unique_ptr<RecordScanner> scanner_;
  std::shared_ptr<const io::TableRows> rows_;  // the row group that was read last
  std::size_t group_ = 0;
  const RecordSource::SourceFile* file_ = nullptr;
  std::int64_t next_ = 0;     // index of the scanner's next record
  std::size_t released_ = 0;  // bytes before this offset were returned to the system, counted from the scanner's start
};

}  // namespace qft::encode
