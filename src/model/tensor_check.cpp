#include "tensor_check.h"

#include "qft/core/convert.h"
#include "qft/core/error.h"
#include "qft/core/member.h"
#include "qft/model/adapter_config.h"
#include "qft/model/pissa.h"

#include <algorithm>
#include <set>

#include "adapters/kinds.h"
#include "sources.h"
#include "stored/stored_format.h"
#include <fmt/ranges.h>

namespace qft::model {
namespace {

/// Tensors that files may hold beside the parameters: derived values, and the second name of a tied head.
bool is_redundant(const std::string& name, const ModelConfig& config) {
  return name.ends_with("rotary_emb.inv_freq") || (config.tie_word_embeddings && name == "lm_head.weight");
}

}  // namespace

void require_shape(const io::TensorFile& file, const io::TensorEntry& entry, const std::vector<std::int64_t>& shape) {
  require(entry.shape == shape, "'{}': tensor '{}' has shape [{}], the model's config.json asks for [{}]", file.path().string(),
          entry.name, fmt::join(entry.shape, ", "), fmt::join(shape, ", "));
  require(is_floating(entry.dtype),
          "'{}': tensor '{}' has dtype {}: expected F32, BF16, F16 or F64 (what is quantised needs a quantization_config in "
          "config.json)",
          file.path().string(), entry.name, safetensors_name(entry.dtype));
}

void refuse_unexpected(const ModelSpec& spec, const io::ModelFiles& files, const StoredFormat* stored) {
  std::set<std::string> known;
  for (const auto& unit : spec.units)
    for (const auto& param : unit.params)
      if (param.role == Role::base && stored && param.is_quantized()) {
        for (const std::string& weight : stored_weights(param))
          for (std::string& tensor : stored_tensors(*stored, weight, param.packed)) known.insert(std::move(tensor));
      } else if (param.role == Role::base) {
        known.insert(param.name);
        for (const FileTensor& part : param.parts) known.insert(part.name);
      } else if (spec.in_model(param)) {
        known.insert(param.name);
      }
  std::vector<std::string> unexpected;
  for (const auto& name : files.names())
    if (!known.count(name) && !is_redundant(name, spec.config) && !spec.config.is_other(name)) unexpected.push_back(name);
  if (unexpected.empty()) return;
  const std::size_t n = unexpected.size();
  unexpected.resize(std::min<std::size_t>(n, 3));
  fail("'{}': {} tensors do not belong to a {} model, e.g. {}: does config.json's model_type fit the files?",
       files.dir().string(), n, spec.config.architecture, fmt::join(unexpected, ", "));
}

void require_tensors(const ModelSpec& spec, const io::ModelFiles& files, const StoredFormat* stored) {
  refuse_unexpected(spec, files, stored);
  for (const auto& unit : spec.units)
    for (const auto& param : unit.params) {
      if (param.role != Role::base) continue;
      if (stored && param.is_quantized())
        for (const std::string& weight : stored_weights(param)) check_stored(*stored, files, weight, param.packed);
      else
        sources_of(param, files);
    }
}

std::unique_ptr<io::TensorFile> open_adapter(const std::filesystem::path& dir) {
  const std::filesystem::path path = io::adapter_weights_of(dir);
  require(std::filesystem::exists(path), "adapter '{}' has no {}: is it complete?", dir.string(), path.filename().string());
  auto file = io::open_tensor_file(path);
  return is_unconverted(dir) ? as_plain(std::move(file), open_initial_factors(member_of(dir, kPissaInitFile))) : std::move(file);
}

const io::TensorEntry& factor_of(const io::TensorFile& file, const std::string& name) {
  constexpr std::string_view kOld = ".block_sparse_moe.", kNew = ".mlp.";
  const auto place = name.find(kOld);
  if (place != std::string::npos && file.find(name) == nullptr) {
    const std::string other = std::string(name).replace(place, kOld.size(), kNew);
    if (const io::TensorEntry* entry = file.find(other)) return *entry;
  }
  return file.at(name);
}

void require_all_used(const io::TensorFile& file, std::size_t used) {
  require(used == file.entries().size(),
          "'{}' holds {} tensors, the adapter's configuration asks for {}: was it made for another model?", file.path().string(),
          file.entries().size(), used);
}

std::string base_weight_of(const ParamSpec& factor) {
  static const std::string prefix = kAdapterPrefix;
  const char* mark = factor.role == Role::rotation ? kOftR : kLoraMark;
  const std::string module = factor.name.substr(prefix.size(), factor.name.rfind(mark) - prefix.size());
  return factor.shape.size() == 3 ? module : module + ".weight";  // a stack of experts is no module
}

}  // namespace qft::model
