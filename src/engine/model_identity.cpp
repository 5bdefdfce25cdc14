#include "qft/engine/model_identity.h"

#include "qft/core/hash.h"
#include "qft/io/identity.h"
#include "qft/io/model_files.h"
#include "qft/model/adapter_config.h"

#include <filesystem>

#include <fmt/format.h>

namespace qft::engine {
namespace {

namespace fs = std::filesystem;

/// Hashes the weights of a folder, independent of the folder's name.
void add_weights(Hasher& hasher, const fs::path& dir) {
  for (const fs::path& file : io::weight_files(dir)) {
    hasher.update(file.filename().string());
    hasher.update(io::sampled_hash(io::File::open_read(file)));
  }
}

void add_adapter(Hasher& hasher, const fs::path& dir) {
  hasher.update(hash_file(dir / model::kAdapterConfigFile));
  add_weights(hasher, dir);
}

std::string quantization_words(const config::ModelArgs& m) {
  if (!m.quantization_bit) return "none";
  std::string text = fmt::format("{} bits, {}", *m.quantization_bit, m.quantization_method);
  if (*m.quantization_bit == 4) text += fmt::format(", {}{}", m.quantization_type, m.double_quantization ? ", double" : "");
  return text;
}

}  // namespace

ModelIdentity model_identity_of(const config::RunConfig& config, const ModelSource& source) {
  Hasher model, adapters;
  model.update(source.config().raw);
  add_weights(model, source.dir());
  for (const AdapterSource& adapter : source.merged()) add_adapter(adapters, adapter.dir);
  if (source.live()) add_adapter(adapters, source.live()->dir);
  const bool bare = source.merged().empty() && !source.live();
  return {model.hex(), bare ? "none" : adapters.hex(), quantization_words(config.model)};
}

}  // namespace qft::engine
