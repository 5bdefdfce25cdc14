// A tokenizer as GGUF files have it. Private to model.
#pragma once

#include "qft/io/gguf.h"
#include "qft/model/tokenizer_changes.h"

#include <cstdint>
#include <filesystem>

namespace qft::model {

/// Where a tokenizer is described, and what training changed of it.
struct GgufTokenizerFiles {
  std::filesystem::path tokenizer;  ///< tokenizer.json, tokenizer_config.json, chat templates
  std::filesystem::path model;  ///< config.json and generation_config.json, for special tokens that the tokenizer does not name
  TokenizerChanges changes = {};
};

/// Vocabulary, merges, special tokens and chat templates, for an embedding of `vocab_size` rows. Kinds of tokens are those of
/// llama.cpp's convert_hf_to_gguf.py; rows without a token are unused ones, each with a name of its own. Throws Error where the
/// tokenizer is of a kind that llama.cpp's names do not tell.
io::GgufMetadata gguf_tokenizer(const GgufTokenizerFiles& files, std::int64_t vocab_size);

}  // namespace qft::model
