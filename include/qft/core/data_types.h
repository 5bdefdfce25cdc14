// The files that hold records of a dataset, by their endings, in upper or lower case.
#pragma once

#include "qft/core/file_ending.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <string>
#include <string_view>

namespace qft {

/// Where a folder has several, those that come first here are its records.
inline constexpr std::array<std::string_view, 6> kDataTypes = {".jsonl", ".json", ".parquet", ".arrow", ".csv", ".txt"};

inline bool is_data_file(const std::filesystem::path& file) {
  return std::find(kDataTypes.begin(), kDataTypes.end(), file_ending(file)) != kDataTypes.end();
}
/// Parquet and Arrow: read by Apache Arrow's library.
inline bool is_table_file(const std::filesystem::path& file) {
  const std::string ending = file_ending(file);
  return ending == ".parquet" || ending == ".arrow";
}

}  // namespace qft
