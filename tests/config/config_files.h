// Run files with qft's keys, and their errors.
#pragma once

#include "qft/config/run_config.h"

#include <string>
#include <string_view>
#include <vector>

#include "support/temp_files.h"

namespace qft::config {

/// Loads `text` as a run file.
inline RunConfig load_text(std::string_view text, std::vector<std::string> overrides = {}, Purpose purpose = Purpose::any,
                           const std::string& name = "run.yaml") {
  TempFolder folder;
  return load_run_config(folder.write(name, text), overrides, purpose);
}

inline std::string error_of_text(std::string_view text, std::vector<std::string> overrides = {}, Purpose purpose = Purpose::any,
                                 const std::string& name = "run.yaml") {
  return error_of([&] { load_text(text, overrides, purpose, name); });
}

}  // namespace qft::config
