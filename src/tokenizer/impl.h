// The parts of a loaded tokenizer. Internal to the module.
#pragma once

#include "qft/tokenizer/tokenizer.h"

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "added_tokens.h"
#include "bpe.h"
#include "pre_tokenizer.h"
#include "vocabulary.h"
#include "word_cache.h"

namespace qft::tokenizer {

struct Tokenizer::Impl {
  Impl();
  Impl(const Impl&) = delete;

  std::uint64_t serial;  ///< unique in the process; identifies the tokenizer in thread caches
  Vocabulary vocabulary;
  std::unique_ptr<BpeModel> bpe;
  std::unique_ptr<const ShortWords> known_words;
  bool nfc = false;
  PreTokenizer pre_tokenizer;
  AddedTokenMatcher raw_tokens;         ///< matched in the original text
  AddedTokenMatcher normalized_tokens;  ///< matched after normalisation
  std::vector<bool> special;            ///< by id
  std::optional<std::int32_t> bos, eos, pad, unk;
  std::string hash;
};

}  // namespace qft::tokenizer
