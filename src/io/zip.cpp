#include "zip.h"

#include "qft/core/error.h"

#include <algorithm>
#include <cstring>
#include <string_view>

namespace qft::io {
namespace {

constexpr std::uint64_t kMaxDirectoryBytes = 100'000'000;
constexpr std::uint32_t kEnd = 0x06054b50, kEnd64 = 0x06064b50, kEnd64Locator = 0x07064b50, kCentral = 0x02014b50,
                        kLocal = 0x04034b50;
constexpr std::uint64_t kEndBytes = 22, kEnd64Bytes = 56, kLocatorBytes = 20, kCentralBytes = 46, kLocalBytes = 30;
constexpr std::uint16_t kWide = 0x0001;  // the extra field with 64-bit sizes

template <class T>
T number(std::string_view bytes, std::uint64_t at) {
  T value;
  std::memcpy(&value, bytes.data() + at, sizeof value);
  return value;
}

std::string read(const File& file, std::uint64_t offset, std::uint64_t bytes, const char* what) {
  require(offset <= file.size() && bytes <= file.size() - offset, "its {} would be at bytes [{}, {}), the file has {}", what,
          offset, offset + bytes, file.size());
  std::string text(bytes, '\0');
  file.pread(offset, text.data(), bytes);
  return text;
}

struct Directory {
  std::uint64_t records = 0, bytes = 0, offset = 0;
};

// The directory's end is at the end of the file, before a comment of at most 64 KB.
Directory find_directory(const File& file) {
  const std::uint64_t tail_bytes = std::min<std::uint64_t>(file.size(), kEndBytes + 0xFFFF);
  const std::string tail = read(file, file.size() - tail_bytes, tail_bytes, "end");
  const std::size_t at = tail.rfind("PK\x05\x06");
  require(at != std::string::npos && at + kEndBytes <= tail.size(),
          "it has no zip end record: it is truncated or not a zip archive; copy it again");
  const std::uint64_t end = file.size() - tail_bytes + at;
  Directory result{number<std::uint16_t>(tail, at + 10), number<std::uint32_t>(tail, at + 12),
                   number<std::uint32_t>(tail, at + 16)};
  if (end >= kLocatorBytes) {
    const std::string locator = read(file, end - kLocatorBytes, kLocatorBytes, "locator");
    if (number<std::uint32_t>(locator, 0) == kEnd64Locator) {
      const std::string wide = read(file, number<std::uint64_t>(locator, 8), kEnd64Bytes, "64-bit directory's end");
      require(number<std::uint32_t>(wide, 0) == kEnd64, "its 64-bit directory's end is damaged: copy it again");
      result = {number<std::uint64_t>(wide, 32), number<std::uint64_t>(wide, 40), number<std::uint64_t>(wide, 48)};
    }
  }
  require(result.bytes <= kMaxDirectoryBytes, "its directory would have {} bytes, more than {}", result.bytes,
          kMaxDirectoryBytes);
  return result;
}

/// Reads the extra field with 64-bit sizes; the normal fields then hold all ones.
class WideValues {
 public:
  explicit WideValues(std::string_view extra) {
    while (extra.size() >= 4) {
      const std::size_t bytes = number<std::uint16_t>(extra, 2);
      if (bytes > extra.size() - 4) return;
      if (number<std::uint16_t>(extra, 0) == kWide) values_ = extra.substr(4, bytes);
      extra.remove_prefix(4 + bytes);
    }
  }
  std::uint64_t or_next(std::uint32_t narrow, const std::string& name) {
    if (narrow != 0xFFFFFFFF) return narrow;
    require(values_.size() >= 8, "its record '{}' lacks a 64-bit size", name);
    const auto value = number<std::uint64_t>(values_, 0);
    values_.remove_prefix(8);
    return value;
  }

 private:
  std::string_view values_;
};

}  // namespace

std::map<std::string, ZipRecord> read_zip_directory(const File& file) {
  const Directory where = find_directory(file);
  const std::string directory = read(file, where.offset, where.bytes, "directory");
  std::map<std::string, ZipRecord> records;
  std::string_view rest = directory;
  while (!rest.empty()) {
    require(rest.size() >= kCentralBytes && number<std::uint32_t>(rest, 0) == kCentral,
            "its directory is damaged at byte {}: copy it again", directory.size() - rest.size());
    const std::uint64_t name_bytes = number<std::uint16_t>(rest, 28), extra_bytes = number<std::uint16_t>(rest, 30),
                        comment_bytes = number<std::uint16_t>(rest, 32),
                        total = kCentralBytes + name_bytes + extra_bytes + comment_bytes;
    require(total <= rest.size(), "its directory ends within a record: copy it again");
    const std::string name(rest.substr(kCentralBytes, name_bytes));
    require((number<std::uint16_t>(rest, 8) & 1) == 0, "its record '{}' is encrypted", name);
    const bool stored = number<std::uint16_t>(rest, 10) == 0;
    WideValues wide(rest.substr(kCentralBytes + name_bytes, extra_bytes));
    const std::uint64_t bytes = wide.or_next(number<std::uint32_t>(rest, 24), name),
                        packed = wide.or_next(number<std::uint32_t>(rest, 20), name),
                        header = wide.or_next(number<std::uint32_t>(rest, 42), name);
    require(!stored || bytes == packed, "its record '{}' has {} bytes, but {} in the file", name, bytes, packed);
    const std::string local = read(file, header, kLocalBytes, "record's header");
    require(number<std::uint32_t>(local, 0) == kLocal, "its record '{}' has no header at byte {}: copy it again", name, header);
    const std::uint64_t data = header + kLocalBytes + number<std::uint16_t>(local, 26) + number<std::uint16_t>(local, 28);
    require(data <= file.size() && packed <= file.size() - data,
            "its record '{}' has {} bytes from byte {} on, the file has {}: copy it again", name, packed, data, file.size());
    require(records.emplace(name, ZipRecord{data, packed, stored}).second, "it has the record '{}' twice", name);
    rest.remove_prefix(total);
  }
  require(records.size() == where.records, "its directory has {} records, not {}: copy it again", records.size(), where.records);
  return records;
}

}  // namespace qft::io
