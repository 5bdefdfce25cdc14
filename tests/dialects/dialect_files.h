// Run files with keys of any tool, and their errors.
#pragma once

#include "qft/config/run_config.h"
#include "qft/dialects/dialects.h"

#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "support/temp_files.h"

namespace qft::dialects {

using config::Purpose;
using config::RunConfig;

inline RunConfig load(const std::filesystem::path& file, std::span<const std::string> overrides = {},
                      Purpose purpose = Purpose::any) {
  return config::load_run_config(file, overrides, purpose, all());
}

/// Loads `text` as a run file.
inline RunConfig load_text(std::string_view text, std::vector<std::string> overrides = {}, Purpose purpose = Purpose::any,
                           const std::string& name = "run.yaml") {
  TempFolder folder;
  return load(folder.write(name, text), overrides, purpose);
}

inline std::string error_of_text(std::string_view text, std::vector<std::string> overrides = {}, Purpose purpose = Purpose::any,
                                 const std::string& name = "run.yaml") {
  return error_of([&] { load_text(text, overrides, purpose, name); });
}

/// Returns all notes, a line each.
inline std::string notes_of(const RunConfig& c) {
  std::string all;
  for (const std::string& note : c.notes) all += note + "\n";
  return all;
}

/// True if a note has these words.
inline bool has_note(const RunConfig& c, std::string_view words) {
  return notes_of(c).find(words) != std::string::npos;
}

}  // namespace qft::dialects
