#include "qft/core/error.h"
#include "qft/io/tensor_file.h"
#include "qft/model/load.h"

#include <cmath>

#include "read_into.h"
#include "tensor_check.h"
#include "uniform_values.h"

namespace qft::model {
namespace {

/// Calls `visit` with the tensors of the head and their unit.
template <class F>
void for_each_of_head(const ModelSpec& spec, const F& visit) {
  for (const ParamSpec& param : spec.units.back().params)
    if (param.role == Role::value_head) visit(spec.head_unit(), param);
}

}  // namespace

void require_value_head(const ModelSpec& spec, const std::filesystem::path& file) {
  const auto tensors = io::open_tensor_file(file);
  for_each_of_head(spec, [&](int, const ParamSpec& param) { require_shape(*tensors, tensors->at(param.name), param.shape); });
}

void load_value_head(const ModelSpec& spec, const std::filesystem::path& file, const ParamAccess& access) {
  require_value_head(spec, file);
  const auto tensors = io::open_tensor_file(file);
  for_each_of_head(spec, [&](int unit, const ParamSpec& param) {
    if (const Shard dst = access(unit, param); dst.values.numel() > 0)
      read_into({{tensors.get(), &tensors->at(param.name)}, 0}, param, dst);
  });
}

void init_value_head(const ModelSpec& spec, std::uint64_t seed, const ParamAccess& access) {
  const double bound = 1.0 / std::sqrt(static_cast<double>(spec.config.hidden_size));
  for_each_of_head(spec, [&](int unit, const ParamSpec& param) {
    if (const Shard dst = access(unit, param); dst.values.numel() > 0) fill_uniform(param, seed, bound, dst);
  });
}

}  // namespace qft::model
