// New tokens in a model and its tokenizer, with rows of the embeddings for them to train. Needs no LibTorch.
#pragma once

#include "qft/io/storage.h"
#include "qft/model/export.h"

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace qft::model {

struct AddTokensRequest {
  std::filesystem::path base;        // the model's directory, with its tokenizer
  std::filesystem::path target;      // appears whole or not at all; must not exist, or be empty
  std::vector<std::string> tokens;   // words that become one token each
  std::vector<std::string> special;  // the same, as special tokens: not part of the answer that is shown
  std::uint64_t max_shard_bytes = kDefaultShardBytes;
};

struct AddedTokens {
  std::vector<std::int64_t> ids;           // of what was added, in order; what the tokenizer had before is left out
  std::vector<std::string> had;            // that
  std::int64_t rows_before = 0, rows = 0;  // of the embeddings
};

/// Writes the model with its tokenizer, which knows the tokens under the next free ids. Where its ids outgrow the embeddings,
/// embeddings and head grow to a multiple of 64 rows. The rows of new tokens, and those that are put in, are the mean of all
/// known tokens' rows with normal noise of deviation 1 / sqrt(hidden size), as LLaMA-Factory's resize_vocab begins them; the same
/// in every call. Throws ConfigError where nothing is to be added or the model is quantised in its files.
AddedTokens add_tokens(io::Storage& storage, const AddTokensRequest& request);

}  // namespace qft::model
