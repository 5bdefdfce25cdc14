// The files that hold records of a dataset, by their extensions.
#pragma once

#include <algorithm>
#include <array>
#include <filesystem>
#include <string>
#include <string_view>

namespace qft {

/// Where a folder has several, those that come first here are its records.
inline constexpr std::array<std::string_view, 6> kDataTypes = {".jsonl", ".json", ".parquet", ".arrow", ".csv", ".txt"};

inline bool is_data_file(const std::filesystem::path& file) {
  return std::find(kDataTypes.begin(), kDataTypes.end(), file.extension().string()) != kDataTypes.end();
}
/// Parquet and Arrow: read by Apache Arrow's library.
inline bool is_table_file(const std::filesystem::path& file) {
  return file.extension() == ".parquet" || file.extension() == ".arrow";
}

}  // namespace qft
