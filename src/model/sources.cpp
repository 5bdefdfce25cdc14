#include "sources.h"

#include "qft/core/error.h"

#include "tensor_check.h"

namespace qft::model {

std::vector<Source> sources_of(const ParamSpec& param, const io::ModelFiles& files) {
  std::vector<Source> sources;
  // A head that an adapter parts from the embeddings begins as these, whatever the files have under its name.
  const bool whole = param.parts.empty() || (files.find(param.name) != nullptr && param.path != kLmHead);
  std::int64_t begin = 0;
  for (const FileTensor& part : whole ? std::vector<FileTensor>{{param.name, param.shape}} : param.parts) {
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
  QFT_ASSERT(std::ssize(names) == param.packed_pieces, "'{}' has {} tensors in {} pieces", param.name, names.size(),
             param.packed_pieces);
  return names;
}

}  // namespace qft::model
