// The files with which sentence-transformers reads a trained folder: SentenceTransformer(DIR) and CrossEncoder(DIR).
#pragma once

#include "qft/config/run_config.h"
#include "qft/io/storage.h"
#include "qft/model/config.h"
#include "qft/model/spec.h"

#include <filesystem>
#include <string>
#include <vector>

namespace qft::engine {

/// Writes these files for stages embedding and reranker beside the tokenizer's files, which must already be in `dir`:
/// modules.json, config_sentence_transformers.json, and 1_Pooling or 1_LogitScore. For embedding models tokenizer.json puts the
/// template's tokens around each text, so plain texts get the tokens of the training. If these tokens depend on the text,
/// sentence_bert_config.json has texts rendered through the chat template instead.
/// `head`: of the trained model. Returns the paths of the files that were written, relative to `dir`; none in other stages.
std::vector<std::filesystem::path> write_sentence_transformers(const config::RunConfig& config, const model::Head& head,
                                                               io::Storage& storage, const std::filesystem::path& dir);

/// Returns config_sentence_transformers.json of a model trained in stage embedding or reranker. The base model's prompts stay;
/// its default prompt only if training put it before anchors or documents.
std::string sentence_settings(const config::RunConfig& config);

/// Returns adapter_config.json of an embedding model as PEFT and ms-swift write it: without a task, with the class of the base
/// model, by which AutoPeftModel finds it.
std::string without_task(const std::string& adapter_config, const model::ModelConfig& base);

}  // namespace qft::engine
