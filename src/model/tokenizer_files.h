// New tokens in a tokenizer's files, without a tokenizer. Private to model.
#pragma once

#include "qft/io/storage.h"

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

namespace qft::model {

/// tokenizer.json and the files beside it that list added tokens, as transformers' add_tokens() would leave them.
class TokenizerFiles {
 public:
  /// Throws Error where `dir` has no tokenizer.json, or one of another form.
  explicit TokenizerFiles(std::filesystem::path dir);

  bool has(const std::string& token) const;
  /// Ids in use: the largest and one.
  std::int64_t size() const { return next_; }
  /// Returns its id, the next free one. The tokenizer must not have it.
  std::int64_t add(const std::string& token, bool special);
  /// Writes the files that changed.
  void write(io::Storage& storage, const std::filesystem::path& dir) const;

 private:
  std::filesystem::path dir_;
  nlohmann::ordered_json tokenizer_, config_, added_;  ///< null: there is no such file
  std::int64_t next_ = 0;
};

}  // namespace qft::model
