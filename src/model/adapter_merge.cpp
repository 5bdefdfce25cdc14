#include "adapter_merge.h"

#include "qft/core/error.h"

#include <algorithm>

#include "tensor_check.h"

namespace qft::model {
namespace {

/// Returns nullptr for embedding and head, which adapters do not wrap.
const Layer* layer_of(const ModelSpec& spec, const UnitSpec& unit) {
  return unit.layer < 0 ? nullptr : &spec.layers[static_cast<std::size_t>(unit.layer)];
}

}  // namespace

Adapter::Adapter(const ModelSpec& spec, std::unique_ptr<io::TensorFile> file) : config_(spec.adapter), file_(std::move(file)) {
  require_adapter_tensors(spec, *file_);
  for (const UnitSpec& unit : spec.units)
    for (const ParamSpec& param : unit.params) {
      for (const FileTensor& part : spec.in_adapter(param)) {
        if (spec.in_model(param)) replacements_[param.name] = {file_.get(), &factor_of(*file_, part.name)};
      }
      if (!is_factor(param.role)) continue;
      ChangedWeight& weight = changed_[base_weight_of(param)];
      weight.params.push_back(&param);
      weight.layer = layer_of(spec, unit);
    }
}

std::unique_ptr<const WeightChange> Adapter::find(const ParamSpec& base) const {
  const auto it = changed_.find(base.name);
  if (it == changed_.end()) return nullptr;
  ChangedWeight weight = it->second;
  weight.base = &base;
  return change_of(config_, *file_, weight);
}

const io::TensorLocation* Adapter::replacement(const ParamSpec& base) const {
  const auto it = replacements_.find(base.name);
  return it == replacements_.end() ? nullptr : &it->second;
}

std::unique_ptr<WeightChange> change_of(const AdapterConfig& config, const io::TensorFile& file, const ChangedWeight& weight) {
  QFT_ASSERT(config.enabled(), "'{}' does not belong to an adapter", file.path().string());
  if (config.oft.enabled()) return oft_change(config.oft, file, weight);
  return lora_change(file, weight);
}

}  // namespace qft::model
