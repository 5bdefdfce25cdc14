#include "qft/encode/record_source.h"

#include "qft/core/activity.h"
#include "qft/core/error.h"
#include "qft/core/file_ending.h"

#include <algorithm>
#include <deque>
#include <future>
#include <mutex>

#include "csv.h"

namespace qft::encode {
namespace {

constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
constexpr std::size_t kWindow = std::size_t{4} << 20;  // bytes of a mapped file kept in memory
constexpr std::size_t kKeptGroups = 4;                 // per table

bool is_space(char c) {
  return c == ' ' || c == '\n' || c == '\r' || c == '\t';
}

std::int64_t count_lines(std::string_view bytes) {
  return std::count(bytes.begin(), bytes.end(), '\n');
}

}  // namespace

RecordLayout layout_of(const std::filesystem::path& file, std::string_view bytes) {
  const std::string ending = file_ending(file);
  if (ending == ".txt") return RecordLayout::text_lines;
  if (ending == ".csv") return RecordLayout::csv_rows;
  const auto first = std::find_if_not(bytes.begin(), bytes.end(), is_space);
  return first != bytes.end() && *first == '[' ? RecordLayout::json_array : RecordLayout::json_lines;
}

void require_text(std::string_view bytes, const std::filesystem::path& file) {
  const std::string fault = describe_non_text(bytes.substr(0, kLeadBytes), file);
  require(fault.empty(), "{}", fault);
}

std::string RecordText::where() const {
  if (line == 0) return fmt::format("{}: row {}", file->string(), number);
  const std::string place = fmt::format("{}:{}", file->string(), line);
  return number == 0 ? place : fmt::format("{}: record {}, byte {}", place, number, byte);
}

RecordScanner::RecordScanner(std::string_view bytes, RecordLayout layout, const std::filesystem::path& file)
    : bytes_(bytes), layout_(layout), file_(file) {}

void RecordScanner::seek(std::size_t offset, std::int64_t line, std::int64_t records) {
  offset_ = offset;
  line_ = line;
  records_ = records;
  closed_ = false;
}

bool RecordScanner::next(RecordText& record) {
  if (layout_ == RecordLayout::csv_rows) return next_row(record);
  return layout_ == RecordLayout::json_array ? next_element(record) : next_line(record);
}

bool RecordScanner::next_line(RecordText& record) {
  while (offset_ < bytes_.size()) {
    std::size_t end = bytes_.find('\n', offset_);
    const std::size_t after = end == bytes_.npos ? bytes_.size() : end + 1;
    if (end == bytes_.npos) end = bytes_.size();
    if (end > offset_ && bytes_[end - 1] == '\r') --end;
    record = {bytes_.substr(offset_, end - offset_), &file_, line_, 0, static_cast<std::int64_t>(offset_) + 1};
    offset_ = after;
    ++line_;
    if (layout_ == RecordLayout::text_lines || !std::all_of(record.text.begin(), record.text.end(), is_space)) return true;
  }
  return false;
}

bool RecordScanner::next_row(RecordText& record) try {
  if (columns_.empty()) {
    std::size_t at = bytes_.starts_with(kByteOrderMark) ? kByteOrderMark.size() : 0;
    while (at < bytes_.size() && !read_csv_row(bytes_, at, columns_)) {
    }
    first_row_ = at;
    auto names = columns_;
    std::sort(names.begin(), names.end());
    const auto twice = std::adjacent_find(names.begin(), names.end());
    require(twice == names.end(), "the first line names the column '{}' twice", twice == names.end() ? "" : *twice);
  }
  if (offset_ < first_row_) {
    line_ += count_lines(bytes_.substr(offset_, first_row_ - offset_));
    offset_ = first_row_;
  }
  while (offset_ < bytes_.size()) {
    std::size_t end = offset_;
    const bool is_row = read_csv_row(bytes_, end, fields_);
    if (is_row) csv_record(columns_, fields_, row_);
    record = {row_, &file_, line_, 0, static_cast<std::int64_t>(offset_) + 1};
    line_ += count_lines(bytes_.substr(offset_, end - offset_));
    offset_ = end;
    if (is_row) return true;
  }
  return false;
} catch (const Error& e) {
  fail("{}:{}: {}{}", file_.string(), line_, e.what(), separator_advice(bytes_));
}

void RecordScanner::skip_space() {
  while (offset_ < bytes_.size() && is_space(bytes_[offset_])) line_ += bytes_[offset_++] == '\n';
}

bool RecordScanner::next_element(RecordText& record) {
  skip_space();
  if (closed_) return false;
  if (offset_ == bytes_.size()) fail_here("the file ends inside the array");
  const char lead = bytes_[offset_];
  if (lead == ']') {
    ++offset_;
    skip_space();
    if (offset_ < bytes_.size()) fail_here("text after the end of the array");
    closed_ = true;
    return false;
  }
  const bool is_first = lead == '[';
  if (!is_first && lead != ',') fail_here("expected ',' or ']' between records");
  ++offset_;
  skip_space();
  if (is_first && offset_ < bytes_.size() && bytes_[offset_] == ']') return next_element(record);
  if (offset_ == bytes_.size()) fail_here("the file ends inside the array");
  if (bytes_[offset_] == ']') fail_here("a comma after the last record: remove it");
  if (bytes_[offset_] != '{') fail_here("expected a record that starts with '{'");
  const std::size_t end = end_of_object(offset_);
  record = {bytes_.substr(offset_, end - offset_), &file_, line_, ++records_, static_cast<std::int64_t>(offset_) + 1};
  line_ += count_lines(record.text);
  offset_ = end;
  return true;
}

// Returns the offset after the '}' that matches the '{' at `begin`.
std::size_t RecordScanner::end_of_object(std::size_t begin) const {
  int depth = 0;
  for (std::size_t i = begin; i < bytes_.size(); ++i) {
    switch (bytes_[i]) {
      case '{':
        ++depth;
        break;
      case '}':
        if (--depth == 0) return i + 1;
        break;
      case '"':
        i = end_of_string(i);
        break;
      default:
        break;
    }
  }
  fail_here("the record that starts here has no end: a brace or a quote is missing");
}

// Returns the quote that closes the string opened at `begin`; the end of the bytes if there is none.
std::size_t RecordScanner::end_of_string(std::size_t begin) const {
  for (std::size_t quote = begin;;) {
    quote = bytes_.find('"', quote + 1);
    if (quote == bytes_.npos) return bytes_.size();
    std::size_t slash = quote;
    while (bytes_[slash - 1] == '\\') --slash;
    if ((quote - slash) % 2 == 0) return quote;
  }
}

void RecordScanner::fail_here(std::string_view what) const {
  const RecordText here{{}, &file_, line_, records_ + 1, static_cast<std::int64_t>(offset_) + 1};
  fail("{}: {}", here.where(), what);
}

std::string_view RecordSource::SourceFile::bytes() const {
  return {reinterpret_cast<const char*>(mapping.data()), static_cast<std::size_t>(mapping.size())};
}

void RecordSource::SourceFile::release(std::size_t begin, std::size_t end) const {
  mapping.release(begin, end - std::min(begin, end));
}

/// Caches a table's most recently read groups, so that threads that read near each other decode a group once.
class TableCache {
 public:
  explicit TableCache(const std::filesystem::path& path) : file_(path) {}
  const io::TableFile& file() const { return file_; }

  std::shared_ptr<const io::TableRows> read(std::size_t group) {
    using Rows = std::shared_ptr<const io::TableRows>;
    std::promise<Rows> promise;
    std::shared_future<Rows> rows;
    bool is_first = false;
    {
      const std::lock_guard lock(mutex_);
      const auto known = std::find_if(recent_.begin(), recent_.end(), [&](const auto& r) { return r.first == group; });
      is_first = known == recent_.end();
      rows = is_first ? promise.get_future().share() : known->second;
      if (!is_first) recent_.erase(known);
      recent_.emplace_front(group, rows);
      if (recent_.size() > kKeptGroups) recent_.pop_back();
    }
    if (is_first) try {
        promise.set_value(std::make_shared<const io::TableRows>(file_.read(group)));
      } catch (...) {
        promise.set_exception(std::current_exception());
      }
    return rows.get();
  }

 private:
  io::TableFile file_;
  std::mutex mutex_;
  std::deque<std::pair<std::size_t, std::shared_future<std::shared_ptr<const io::TableRows>>>> recent_;  // most recent first
};

void for_first_records(const std::filesystem::path& path, std::int64_t count,
                       const std::function<void(const RecordText&)>& body) {
  const io::File handle = io::File::open_read(path);
  if (handle.size() == 0) return;
  if (is_table_file(path)) {
    const std::string pointer = describe_pointer(handle.lead(), path);
    require(pointer.empty(), "{}", pointer);
    const io::TableFile table(path);
    for (std::int64_t g = 0, row = 0; g < static_cast<std::int64_t>(table.groups()) && row < count; ++g) {
      const io::TableRows rows = table.read(static_cast<std::size_t>(g));
      for (std::size_t i = 0; i < rows.ends.size() && row < count; ++i) body({rows.row(i), &path, 0, ++row, 0});
    }
    return;
  }
  const io::Mapping mapping(handle, 0, handle.size());
  const std::string_view bytes(reinterpret_cast<const char*>(mapping.data()), mapping.size());
  require_text(bytes, path);
  const std::size_t mark = bytes.starts_with(kByteOrderMark) ? kByteOrderMark.size() : 0;
  RecordScanner scanner(bytes, layout_of(path, bytes.substr(mark)), path);
  scanner.seek(mark, 1, 0);
  RecordText record;
  for (std::int64_t i = 0; i < count && scanner.next(record); ++i) body(record);
}

std::shared_ptr<const RecordSource> RecordSource::open(const std::vector<std::filesystem::path>& files) {
  auto source = std::make_shared<RecordSource>();
  source->files_.reserve(files.size());  // records point to the paths
  Hasher hasher;
  for (const std::filesystem::path& path : files) {
    const io::File handle = io::File::open_read(path);
    if (handle.size() == 0) continue;
    SourceFile& file = source->files_.emplace_back();
    file.path = path;
    file.mapping = io::Mapping(handle, 0, handle.size());
    source->index(file, hasher);
    source->size_ += file.records;
  }
  require(source->size_ > 0, "{} has no records", files.front().string());
  source->hash_ = hasher.hex();
  return source;
}

/// Finds the file's records and hashes its bytes in one pass; releases the memory behind it.
void RecordSource::index(SourceFile& file, Hasher& hasher) {
  const std::string_view bytes = file.bytes();
  const std::string pointer = describe_pointer(bytes.substr(0, kLeadBytes), file.path);
  require(pointer.empty(), "{}", pointer);
  if (is_table_file(file.path)) {
    file.table = std::make_shared<TableCache>(file.path);
    file.records = file.table->file().rows();
  } else {
    require_text(bytes, file.path);
  }
  const std::size_t start = bytes.starts_with(kByteOrderMark) ? kByteOrderMark.size() : 0;
  file.layout = layout_of(file.path, bytes.substr(start));
  file.first = size_;
  std::size_t done = 0;
  const auto pass = [&](std::size_t offset) {
    for (std::size_t end; done < offset; done = end) {
      end = std::min(offset, done + kWindow);
      hasher.update(bytes.data() + done, end - done);
      file.release(done, end);
      activity::tick();
    }
  };
  if (file.table) return pass(bytes.size());
  RecordScanner scanner(bytes, file.layout, file.path);
  scanner.seek(start, 1, 0);
  RecordText record;
  for (Mark mark{start, 1}; scanner.next(record); mark = {scanner.offset(), scanner.line()}) {
    if (file.records++ % kStride == 0) file.marks.push_back(mark);
    if (scanner.offset() - done >= kWindow) pass(scanner.offset());
  }
  pass(bytes.size());
}

std::int64_t RecordSource::bytes() const {
  std::size_t sum = 0;
  for (const SourceFile& file : files_) sum += file.bytes().size();
  return static_cast<std::int64_t>(sum);
}

std::vector<std::pair<std::filesystem::path, std::int64_t>> RecordSource::files() const {
  std::vector<std::pair<std::filesystem::path, std::int64_t>> files;
  for (const SourceFile& file : files_) files.emplace_back(file.path, static_cast<std::int64_t>(file.bytes().size()));
  return files;
}

RecordCursor::~RecordCursor() {
  leave_file();
}

void RecordCursor::leave_file() {
  if (file_ && scanner_) file_->release(released_, scanner_->offset());
}

RecordText RecordCursor::row_of_table(std::int64_t row) {
  const auto& starts = file_->table->file().starts();
  const auto group = static_cast<std::size_t>(std::upper_bound(starts.begin(), starts.end(), row) - starts.begin()) - 1;
  if (!rows_ || group != group_) {
    rows_ = file_->table->read(group);
    group_ = group;
    activity::tick();
  }
  return {rows_->row(static_cast<std::size_t>(row - starts[group])), &file_->path, 0, row + 1, 0};
}

RecordText RecordCursor::at(std::int64_t index) {
  QFT_ASSERT(index >= 0 && index < source_.size(), "record {} of {}", index, source_.size());
  if (!file_ || index < file_->first || index >= file_->first + file_->records) {
    const auto after = std::upper_bound(source_.files_.begin(), source_.files_.end(), index,
                                        [](std::int64_t i, const auto& file) { return i < file.first; });
    auto file = after - 1;
    while (file->records == 0) --file;
    leave_file();
    file_ = &*file;
    scanner_ = file_->table ? nullptr : std::make_unique<RecordScanner>(file_->bytes(), file_->layout, file_->path);
    rows_.reset();
    next_ = -1;
  }
  const std::int64_t local = index - file_->first;
  if (file_->table) return row_of_table(local);
  const std::int64_t mark = local / RecordSource::kStride;
  if (next_ < 0 || local < next_ || mark > next_ / RecordSource::kStride) {
    const RecordSource::Mark& m = file_->marks[static_cast<std::size_t>(mark)];
    if (next_ >= 0) file_->release(released_, scanner_->offset());
    next_ = mark * RecordSource::kStride;
    scanner_->seek(m.offset, m.line, next_);
    released_ = m.offset;
  }
  if (scanner_->offset() - released_ >= kWindow) {
    file_->release(released_, scanner_->offset());
    released_ = scanner_->offset();
    activity::tick();
  }
  RecordText record;
  do
    if (!scanner_->next(record)) fail("{} changed while it was read", file_->path.string());
  while (next_++ < local);
  return record;
}

}  // namespace qft::encode
