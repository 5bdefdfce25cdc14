// The files with which sentence-transformers reads a model folder: modules.json, the folders that it names, and two
// configurations beside it.
#pragma once

#include "qft/io/storage.h"

#include <filesystem>
#include <string>
#include <vector>

namespace qft::model {

inline constexpr const char* kModulesFile = "modules.json";
inline constexpr const char* kSentenceSettingsFile = "config_sentence_transformers.json";
inline constexpr const char* kSentenceTransformerFile = "sentence_bert_config.json";

/// Classes of modules that qft computes.
inline constexpr const char *kTransformerModule = "Transformer", *kPoolingModule = "Pooling", *kNormalizeModule = "Normalize",
                            *kLogitScoreModule = "LogitScore";

/// An entry of modules.json.
struct SentenceModule {
  std::string kind;    ///< the class without its Python module: "Pooling"
  std::string folder;  ///< with the module's files, beside modules.json; empty for the transformer
};

/// Returns the modules in order; none if `dir` has no modules.json. Throws Error if the file is damaged, if it names a folder
/// that is not beside it, or if the transformer is in a subfolder.
std::vector<SentenceModule> sentence_modules(const std::filesystem::path& dir);

/// The model that a modules.json describes.
enum class SentenceModel {
  none,        ///< there is no modules.json
  embedding,   ///< it pools
  generative,  ///< a reranker with the logits of two tokens
  other        ///< a transformer alone: a reranker with a head
};
SentenceModel sentence_model(const std::filesystem::path& dir);

/// Returns true if the task_type of the adapter's adapter_config.json fits this kind of model. Embedding models have none
/// (ms-swift) or FEATURE_EXTRACTION (PEFT over AutoModel).
bool fits_task(SentenceModel model, const std::filesystem::path& adapter);

/// Returns the folder with the modules.json of `base` with `adapter` (empty: none): the adapter's, else the base's if the
/// adapter's task_type fits this kind of model. Empty: there is none.
std::filesystem::path sentence_folder(const std::filesystem::path& base, const std::filesystem::path& adapter);

/// Copies these files, and all files of the modules' folders, from a model's or an adapter's folder to another. Syncs them. Does
/// nothing if `from` has no modules.json.
void copy_sentence_files(io::Storage& storage, const std::filesystem::path& from, const std::filesystem::path& to);

}  // namespace qft::model
