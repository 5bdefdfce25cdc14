// Recognises file types by file name, a dataset's files among them, and files whose content does not match their name: Git LFS
// pointers, UTF-16, compressed files.
#pragma once

#include <algorithm>
#include <array>
#include <filesystem>
#include <string>
#include <string_view>

namespace qft {

/// Returns the ending of the file name in lower case with its dot: ".json" for "data/A.JSON"; "" if there is none.
inline std::string file_ending(const std::filesystem::path& file) {
  std::string ending = file.extension().string();
  for (char& c : ending)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return ending;
}

/// True for .yaml and .yml files.
inline bool is_yaml_file(const std::filesystem::path& file) {
  const std::string ending = file_ending(file);
  return ending == ".yaml" || ending == ".yml";
}
inline bool is_json_file(const std::filesystem::path& file) {
  return file_ending(file) == ".json";
}

/// Bytes from the beginning of a file that both functions need.
inline constexpr std::size_t kLeadBytes = 64;

/// Returns "'x.json' is a Git LFS pointer, not the file itself: ..." if `lead`, the file's first bytes, is such a pointer (the
/// repository was cloned without Git LFS); otherwise "".
std::string describe_pointer(std::string_view lead, const std::filesystem::path& path);

/// Like describe_pointer(), for each kind of file that has no plain text: an LFS pointer, UTF-16, a compressed file.
std::string describe_non_text(std::string_view lead, const std::filesystem::path& path);

/// If a folder has data files with several of these endings, its records are in the files with the first one.
inline constexpr std::array<std::string_view, 6> kDataTypes = {".jsonl", ".json", ".parquet", ".arrow", ".csv", ".txt"};

inline bool is_data_file(const std::filesystem::path& file) {
  return std::find(kDataTypes.begin(), kDataTypes.end(), file_ending(file)) != kDataTypes.end();
}
/// True for Parquet and Arrow files, which Apache Arrow's library reads.
inline bool is_table_file(const std::filesystem::path& file) {
  const std::string ending = file_ending(file);
  return ending == ".parquet" || ending == ".arrow";
}

}  // namespace qft
