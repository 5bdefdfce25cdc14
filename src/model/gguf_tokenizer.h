// A tokenizer in GGUF files. Private to model.
#pragma once

#include "qft/io/gguf.h"
#include "qft/model/tokenizer_changes.h"

#include <cstdint>
#include <filesystem>

namespace qft::model {

/// The files that describe a tokenizer, and the changes that training made.
struct GgufTokenizerFiles {
  std::filesystem::path tokenizer;  ///< tokenizer.json, tokenizer_config.json, chat templates
  std::filesystem::path model;  ///< config.json and generation_config.json, for special tokens that the tokenizer does not name
  TokenizerChanges changes = {};
};

/// Returns vocabulary, merges, special tokens and chat templates for an embedding with `vocab_size` rows. Token types follow
/// llama.cpp's convert_hf_to_gguf.py; rows without a token become unused tokens with unique names. Throws Error if llama.cpp has
/// no name for this kind of tokenizer.
io::GgufMetadata gguf_tokenizer(const GgufTokenizerFiles& files, std::int64_t vocab_size);

}  // namespace qft::model
