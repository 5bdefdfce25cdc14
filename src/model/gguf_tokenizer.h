// A tokenizer as GGUF files have it. Private to model.
#pragma once

#include "qft/io/gguf.h"

#include <cstdint>
#include <filesystem>

namespace qft::model {

/// Vocabulary, merges, special tokens and chat template of DIR/tokenizer.json and tokenizer_config.json, for an embedding of
/// `vocab_size` rows. Throws Error where the tokenizer is of a kind that llama.cpp's names do not tell.
io::GgufMetadata gguf_tokenizer(const std::filesystem::path& dir, std::int64_t vocab_size);

}  // namespace qft::model
