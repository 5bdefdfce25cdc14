#include "sources.h"

#include "qft/core/error.h"

#include "tensor_check.h"

namespace qft::model {

namespace {

/// If embeddings or head are missing, suggests that tie_word_embeddings may be wrong.
void fail_tied(const ParamSpec& param, const std::string& name, const io::ModelFiles& files) {
  const bool head = param.path == kLmHead;
  if (!head && (param.path != kEmbedTokens || files.find(kLmHead) == nullptr)) return;
  if (head)
    fail(
        "model '{}' has no tensor '{}', which it needs because tie_word_embeddings is not true in its config.json: set it to "
        "true if the model's head is its embeddings; leave it if this is an embedding model, which stage embedding trains without "
        "a head; otherwise the download is incomplete",
        files.dir().string(), name);
  fail(
      "model '{}' has no tensor '{}', only a {}: if the two are tied (tie_word_embeddings), save the model again with "
      "transformers, which writes the embeddings; otherwise the download is incomplete",
      files.dir().string(), name, kLmHead);
}

}  // namespace

std::vector<Source> sources_of(const ParamSpec& param, const io::ModelFiles& files) {
  std::vector<Source> sources;
  // A head that an adapter unties starts as the embeddings, even if the files have a tensor with its name.
  const bool whole = param.parts.empty() || (files.find(param.name) != nullptr && param.path != kLmHead);
  std::int64_t begin = 0;
  for (const FileTensor& part : whole ? std::vector<FileTensor>{{param.name, param.shape}} : param.parts) {
    if (files.find(part.name) == nullptr) fail_tied(param, part.name, files);
    const io::TensorLocation& where = files.at(part.name);
    require_shape(*where.file, *where.entry, part.shape);
    sources.push_back({where, begin});
    begin += static_cast<std::int64_t>(where.entry->elements());
  }
  return sources;
}

std::vector<std::string> stored_weights(const ParamSpec& param) {
  std::vector<std::string> names;
  for (const FileTensor& part : param.in_files()) names.push_back(part.name);
  QFT_ASSERT(std::ssize(names) == param.packed_pieces, "'{}' has {} tensors, but {} pieces", param.name, names.size(),
             param.packed_pieces);
  return names;
}

}  // namespace qft::model
