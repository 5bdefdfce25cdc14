// Recognises the data files of a dataset by their endings, in upper or lower case.
#pragma once

#include "qft/core/file_ending.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <string>
#include <string_view>

namespace qft {

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
