#include "qft/core/error.h"
#include "qft/device/scalar_type.h"
#include "qft/model/adapter_config.h"
#include "qft/model/load.h"

#include "adapters/code.h"
#include "read_into.h"
#include "tensor_check.h"
#include <ATen/ops/empty.h>

namespace qft::model {
namespace {

/// Reads elements of a factor with the experts innermost in its tensor. They are not contiguous, so the whole tensor is read.
void read_experts_last(const io::TensorFile& file, const io::TensorEntry& entry, const ParamSpec& param, const Shard& dst) {
  const at::Tensor all =
      at::empty({static_cast<std::int64_t>(entry.elements())}, at::TensorOptions().dtype(device::scalar_type_of(entry.dtype)));
  file.read(entry, 0, entry.bytes(), all.data_ptr());
  const at::Tensor experts_first = all.view({param.shape[1], param.shape[2], param.shape[0]}).permute({2, 0, 1}).contiguous();
  dst.values.copy_(experts_first.view(-1).narrow(0, dst.begin, dst.values.numel()));
}

/// Reads this rank's part of a parameter from the adapter.
void read_from_adapter(const io::TensorFile& file, const ModelSpec& spec, const ParamSpec& param, const Shard& dst) {
  if (dst.values.numel() == 0) return;
  std::int64_t begin = 0;
  for (const FileTensor& part : spec.in_adapter(param)) {
    const io::TensorEntry& entry = factor_of(file, part.name);
    if (param.experts_last) return read_experts_last(file, entry, param, dst);
    read_into({{&file, &entry}, begin}, param, dst);
    begin += static_cast<std::int64_t>(entry.elements());
  }
}

}  // namespace

void init_adapter(const ModelSpec& spec, std::uint64_t seed, const ParamAccess& access) {
  const AdapterCode* code = code_of(spec.adapter);
  for (int u = 0; u < spec.num_units(); ++u)
    for (const auto& param : spec.units[static_cast<std::size_t>(u)].params) {
      if (!is_factor(param.role)) continue;
      const Shard dst = access(u, param);
      if (dst.values.numel() > 0) code->initialise(param, seed, dst);
    }
}

void load_initial_factors(const ModelSpec& spec, const io::TensorFile& initial, const ParamAccess& access) {
  for (int u = 0; u < spec.num_units(); ++u)
    for (const auto& param : spec.units[static_cast<std::size_t>(u)].params)
      if (param.role == Role::lora_a || param.role == Role::lora_b)
        read_from_adapter(initial, spec, param, access(u, param));
      else if (param.role == Role::magnitude)
        access(u, param).values.zero_();
}

void init_magnitude(const ParamSpec& magnitude, const at::Tensor& derived, const Shard& dst) {
  if (dst.values.numel() > 0) dst.values.copy_(row_norms(magnitude, derived).narrow(0, dst.begin, dst.values.numel()));
}

void require_adapter(const ModelSpec& spec, const std::filesystem::path& dir) {
  require_adapter_tensors(spec, *open_adapter(dir));
}

void load_adapter(const ModelSpec& spec, const std::filesystem::path& dir, const ParamAccess& access) {
  require_adapter(spec, dir);
  const auto file = open_adapter(dir);
  for (int u = 0; u < spec.num_units(); ++u)
    for (const auto& param : spec.units[static_cast<std::size_t>(u)].params)
      if (!spec.in_adapter(param).empty()) read_from_adapter(*file, spec, param, access(u, param));
}

}  // namespace qft::model
