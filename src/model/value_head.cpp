#include "qft/core/error.h"
#include "qft/io/tensor_file.h"
#include "qft/model/load.h"

#include <cmath>

#include "initial_values.h"
#include "read_into.h"
#include "tensor_check.h"

namespace qft::model {
namespace {

/// Calls `visit` with each tensor of the head and its unit.
template <class F>
void for_each_of_head(const ModelSpec& spec, const F& visit) {
  for (const ParamSpec& param : spec.units.back().params)
    if (param.role == Role::value_head) visit(spec.head_unit(), param);
}

}  // namespace

HeadFile find_head(const ModelSpec& spec, const io::ModelFiles& files, const std::filesystem::path& adapter) {
  if (!spec.head.classifies()) return {io::value_head_of(adapter.empty() ? files.dir() : adapter)};
  if (!adapter.empty()) {
    const std::filesystem::path path = io::adapter_weights_of(adapter);
    if (std::filesystem::exists(path) && io::open_tensor_file(path)->find(std::string(kAdapterPrefix) + kScore) != nullptr)
      return {path, kAdapterPrefix};
  }
  const io::TensorLocation* own = files.find(kScore);
  return {own == nullptr ? std::filesystem::path() : own->file->path()};
}

void require_value_head(const ModelSpec& spec, const HeadFile& file) {
  const auto tensors = io::open_tensor_file(file.path);
  for_each_of_head(
      spec, [&](int, const ParamSpec& param) { require_shape(*tensors, tensors->at(file.prefix + param.name), param.shape); });
}

void load_value_head(const ModelSpec& spec, const HeadFile& file, const ParamAccess& access) {
  require_value_head(spec, file);
  const auto tensors = io::open_tensor_file(file.path);
  for_each_of_head(spec, [&](int unit, const ParamSpec& param) {
    if (const Shard dst = access(unit, param); dst.values.numel() > 0)
      read_into({{tensors.get(), &tensors->at(file.prefix + param.name)}, 0}, param, dst);
  });
}

void init_value_head(const ModelSpec& spec, std::uint64_t seed, const ParamAccess& access) {
  const double bound = 1.0 / std::sqrt(static_cast<double>(spec.config.hidden_size));
  for_each_of_head(spec, [&](int unit, const ParamSpec& param) {
    const Shard dst = access(unit, param);
    if (dst.values.numel() == 0) return;
    if (spec.head.classifies())
      fill_normal(param, seed, spec.config.initializer_range, dst);
    else
      fill_uniform(param, seed, bound, dst);
  });
}

}  // namespace qft::model
