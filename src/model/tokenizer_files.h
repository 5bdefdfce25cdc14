// Adds new tokens to a tokenizer's files without loading the tokenizer. Private to model.
#pragma once

#include "qft/io/storage.h"

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

namespace qft::model {

/// tokenizer.json and the files beside it that list added tokens, changed as transformers' add_tokens() would.
class TokenizerFiles {
 public:
  /// Throws Error if `dir` has no tokenizer.json, or one in another form.
  explicit TokenizerFiles(std::filesystem::path dir);

  bool has(const std::string& token) const;
  /// Returns the largest id in use plus one.
  std::int64_t size() const { return next_; }
  /// Returns the token's id, the next free one. The tokenizer must not have the token.
  std::int64_t add(const std::string& token, bool special);
  /// Writes the changed files.
  void write(io::Storage& storage, const std::filesystem::path& dir) const;

 private:
  std::filesystem::path dir_;
  nlohmann::ordered_json tokenizer_, config_, added_;  ///< null: there is no such file
  std::int64_t next_ = 0;
};

}  // namespace qft::model
