// The tiny tokenizer (tests/tokenizer/data/tiny) and modified copies of it.
#pragma once

#include "qft/core/error.h"
#include "qft/tokenizer/tokenizer.h"

#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <string>

#include "test_paths.h"
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace qft::tokenizer {

inline std::filesystem::path tiny_dir() {
  return std::filesystem::path(test::kSourceDir) / "tests" / "tokenizer" / "data" / "tiny";
}

inline nlohmann::json read_json(const std::filesystem::path& path) {
  std::ifstream in(path);
  return nlohmann::json::parse(in);
}

/// A folder that exists as long as the object.
class TemporaryDir {
 public:
  TemporaryDir() {
    std::string name = (std::filesystem::temp_directory_path() / "qft_tokenizer_XXXXXX").string();
    path_ = mkdtemp(name.data());
  }
  ~TemporaryDir() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TemporaryDir(const TemporaryDir&) = delete;
  const std::filesystem::path& path() const { return path_; }
  void write(const std::string& name, const std::string& text) const { std::ofstream(path_ / name) << text; }

 private:
  std::filesystem::path path_;
};

/// The tiny tokenizer with a modified tokenizer.json (and tokenizer_config.json).
class Changed {
 public:
  using Edit = std::function<void(nlohmann::json& tokenizer, nlohmann::json& config)>;

  explicit Changed(const Edit& edit) {
    auto tokenizer = read_json(tiny_dir() / "tokenizer.json");
    auto config = read_json(tiny_dir() / "tokenizer_config.json");
    edit(tokenizer, config);
    dir_.write("tokenizer.json", tokenizer.dump());
    dir_.write("tokenizer_config.json", config.dump());
  }
  std::shared_ptr<const Tokenizer> load() const { return Tokenizer::load(dir_.path()); }
  const TemporaryDir& dir() const { return dir_; }

  /// Returns the error on loading; fails the test if it loads.
  std::string error() const {
    try {
      load();
    } catch (const Error& error) {
      return error.what();
    }
    ADD_FAILURE() << "a broken tokenizer was loaded";
    return {};
  }

 private:
  TemporaryDir dir_;
};

}  // namespace qft::tokenizer
