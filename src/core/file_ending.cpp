#include "qft/core/file_ending.h"

#include <fmt/format.h>

namespace qft {

std::string describe_pointer(std::string_view lead, const std::filesystem::path& path) {
  if (!lead.starts_with("version https://git-lfs")) return {};
  const std::string folder = path.has_parent_path() ? path.parent_path().string() : ".";
  return fmt::format("'{}' is a Git LFS pointer, not the file itself: run 'git lfs pull' in {}, or download it again",
                     path.string(), folder);
}

std::string describe_non_text(std::string_view lead, const std::filesystem::path& path) {
  if (std::string pointer = describe_pointer(lead, path); !pointer.empty()) return pointer;
  const std::string name = path.string();
  // By the byte-order mark, or by the zero byte next to each ASCII letter.
  const bool is_marked = lead.starts_with("\xFF\xFE") || lead.starts_with("\xFE\xFF");
  const bool has_zeros = lead.size() > 1 && (lead[0] == '\0') != (lead[1] == '\0');
  if (is_marked || has_zeros)
    return fmt::format("'{}' is UTF-16: save it as UTF-8 (iconv -f UTF-16 -t UTF-8 '{}' > NEW)", name, name);
  if (lead.starts_with("\x1F\x8B")) return fmt::format("'{}' is compressed: unpack it first (gzip -dc '{}' > NEW)", name, name);
  if (lead.starts_with("PK\x03\x04")) return fmt::format("'{}' is a zip archive: unpack it first", name);
  if (lead.starts_with("PAR1")) return fmt::format("'{}' is a Parquet file: give it a name that ends in .parquet", name);
  return {};
}

}  // namespace qft
