// Temporary files, and errors as texts.
#pragma once

#include "qft/core/error.h"

#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <unistd.h>

#include <gtest/gtest.h>

namespace qft {

/// A folder that is removed after the test.
class TempFolder {
 public:
  TempFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "qft-folder-XXXXXX").string();
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

/// Returns the message of the ConfigError that `call` throws, without the temporary folder's name.
template <class Call>
std::string error_of(Call&& call) {
  try {
    call();
  } catch (const ConfigError& error) {
    std::string text = error.what();
    const std::string folder = (std::filesystem::temp_directory_path() / "qft-folder-").string();
    for (std::size_t at; (at = text.find(folder)) != std::string::npos;) text.erase(at, folder.size() + 7);
    return text;
  }
  ADD_FAILURE() << "no ConfigError was thrown";
  return {};
}

}  // namespace qft

#define EXPECT_CONTAINS(text, part) EXPECT_NE((text).find(part), std::string::npos) << "in: " << (text)
