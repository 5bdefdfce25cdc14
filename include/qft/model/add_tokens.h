// Adds new tokens to a tokenizer, and trainable embedding rows for them to its model. Needs no LibTorch.
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
  std::filesystem::path target;      // appears complete or not at all; must be empty or not exist
  std::vector<std::string> tokens;   // words that become one token each
  std::vector<std::string> special;  // the same, as special tokens: left out of displayed answers
  std::uint64_t max_shard_bytes = kDefaultShardBytes;
};

struct AddedTokens {
  std::vector<std::int64_t> ids;           // new ids, in order; tokens that the tokenizer already had are left out
  std::vector<std::string> already_known;  // tokens that the tokenizer already had
  std::int64_t rows_before = 0, rows = 0;  // rows of the embeddings
};

/// Writes the model and its tokenizer, extended by the tokens under the next free ids. If the ids outgrow the embeddings,
/// embeddings and head grow to a multiple of 64 rows. The rows of new tokens and all inserted rows are the mean of all known
/// tokens' rows plus normal noise with deviation 1 / sqrt(hidden size), as in LLaMA-Factory's resize_vocab. Every call gives the
/// same values. Throws ConfigError if there is nothing to add or the model's files are quantised.
AddedTokens add_tokens(io::Storage& storage, const AddTokensRequest& request);

}  // namespace qft::model
