// Temporary run files, and errors as texts.
#pragma once

#include "qft/config/run_config.h"
#include "qft/core/error.h"

#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <unistd.h>
#include <vector>

#include <gtest/gtest.h>

namespace qft::config {

/// A folder that is removed after the test.
class TempFolder {
 public:
  TempFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "qft-config-XXXXXX").string();
    path_ = ::mkdtemp(name.data());
  }
  ~TempFolder() { std::filesystem::remove_all(path_); }

  std::string write(const std::string& name, std::string_view text) const {
    const auto file = path_ / name;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file, std::ios::binary) << text;
    return file.string();
  }
  std::string path() const { return path_.string(); }

 private:
  std::filesystem::path path_;
};

/// Loads `text` as a run file.
inline RunConfig load_text(std::string_view text, std::vector<std::string> overrides = {}, Purpose purpose = Purpose::any,
                           const std::string& name = "run.yaml") {
  TempFolder folder;
  return load_run_config(folder.write(name, text), overrides, purpose);
}

/// Returns the message of the ConfigError that `call` throws, without the temporary folder's name.
template <class Call>
std::string error_of(Call&& call) {
  try {
    call();
  } catch (const ConfigError& error) {
    std::string text = error.what();
    const std::string folder = (std::filesystem::temp_directory_path() / "qft-config-").string();
    for (std::size_t at; (at = text.find(folder)) != std::string::npos;) text.erase(at, folder.size() + 7);
    return text;
  }
  ADD_FAILURE() << "no ConfigError was thrown";
  return {};
}

inline std::string error_of_text(std::string_view text, std::vector<std::string> overrides = {}, Purpose purpose = Purpose::any,
                                 const std::string& name = "run.yaml") {
  return error_of([&] { load_text(text, overrides, purpose, name); });
}

}  // namespace qft::config

#define EXPECT_CONTAINS(text, part) EXPECT_NE((text).find(part), std::string::npos) << "in: " << (text)
