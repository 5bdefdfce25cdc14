// The files with which sentence-transformers reads a trained folder: SentenceTransformer(DIR) and CrossEncoder(DIR).
#pragma once

#include "qft/config/run_config.h"
#include "qft/io/storage.h"

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace qft::engine {

/// Writes these files for stages embedding and reranker beside the tokenizer's files, which must already be in `dir`:
/// modules.json, config_sentence_transformers.json (the base model's prompts stay), 1_Pooling or 1_LogitScore, and
/// sentence_bert_config.json if texts go through a chat template. If texts end with a token of a template that is not a chat
/// template, tokenizer.json appends it too. `hidden_size`: numbers of a vector. Returns the paths of the files that were written,
/// relative to `dir`; none in other stages.
std::vector<std::filesystem::path> write_sentence_transformers(const config::RunConfig& config, std::int64_t hidden_size,
                                                               io::Storage& storage, const std::filesystem::path& dir);

/// Copies these files, the tokenizer's and the chat template from a trained adapter's folder to the folder of the merged model.
/// Does nothing if the adapter has none. A reranker's config.json gets the padding token.
void copy_sentence_transformers(io::Storage& storage, const std::filesystem::path& adapter, const std::filesystem::path& to);

/// Returns adapter_config.json of an embedding model as PEFT and ms-swift write it: without a task, with the class of the base
/// model.
std::string without_task(const std::string& adapter_config, const std::string& architecture);

/// Returns the id of the padding token that tokenizer_config.json names; nothing if it names none.
std::optional<std::int32_t> padding_id(const std::filesystem::path& tokenizer);

/// Returns config.json with the tokenizer's padding token, by which transformers finds a classifier's last token; unchanged if
/// there is none.
std::string with_pad_token(const std::string& model_config, const std::filesystem::path& tokenizer);

}  // namespace qft::engine
