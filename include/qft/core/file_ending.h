// Recognises file types by file name.
#pragma once

#include <filesystem>
#include <string>

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

}  // namespace qft
