#include "qft/core/error.h"
#include "qft/core/hash.h"
#include "qft/device/scalar_type.h"
#include "qft/model/adapter_config.h"
#include "qft/model/load.h"
#include "qft/ops/philox.h"

#include <algorithm>
#include <cmath>

#include "read_into.h"
#include "tensor_check.h"
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>

namespace qft::model {
namespace {

/// Elements [begin, end) of uniform values in [-bound, bound): 24 random bits each, from (seed, name, index) alone.
std::vector<float> uniform(std::uint64_t seed, const std::string& name, std::int64_t begin, std::int64_t end, double bound) {
  const auto site = static_cast<std::uint32_t>(std::stoul(hash_hex(name).substr(0, 8), nullptr, 16));
  const ops::PhiloxKey key = {static_cast<std::uint32_t>(seed) ^ site, static_cast<std::uint32_t>(seed >> 32) + site};
  std::vector<float> values(static_cast<std::size_t>(end - begin));
  for (std::int64_t block = begin / 4; block * 4 < end; ++block) {
    const auto words = ops::philox({static_cast<std::uint32_t>(block), static_cast<std::uint32_t>(block >> 32), site, 0}, key);
    for (std::int64_t i = std::max(begin, block * 4); i < std::min(end, block * 4 + 4); ++i)
      values[static_cast<std::size_t>(i - begin)] =
          static_cast<float>(bound * (2.0 * static_cast<double>(words[static_cast<std::size_t>(i % 4)] >> 8) / (1 << 24) - 1.0));
  }
  return values;
}

/// This rank's part of A.
void fill_uniform(const ParamSpec& param, std::uint64_t seed, const Shard& dst) {
  std::vector<float> values(static_cast<std::size_t>(dst.values.numel()));
  const BoxRange mine{param.box, static_cast<std::uint64_t>(dst.begin), static_cast<std::uint64_t>(dst.end())};
  const Box whole = Box::whole(param.shape);
  for_each_common_run(mine, {whole, 0, whole.elements()}, [&](const CommonRun& run) {
    const auto begin = static_cast<std::int64_t>(run.b);
    const auto part = uniform(seed, param.name, begin, begin + static_cast<std::int64_t>(run.count),
                              1.0 / std::sqrt(static_cast<double>(param.shape.back())));
    std::copy(part.begin(), part.end(), values.begin() + static_cast<std::ptrdiff_t>(run.a));
  });
  dst.values.copy_(at::from_blob(values.data(), {dst.values.numel()}, at::kFloat));
}

/// The elements of a factor whose experts are innermost in its tensor, which is read whole.
void read_experts_last(const io::TensorFile& file, const io::TensorEntry& entry, const ParamSpec& param, const Shard& dst) {
  const at::Tensor all =
      at::empty({static_cast<std::int64_t>(entry.elements())}, at::TensorOptions().dtype(device::scalar_type_of(entry.dtype)));
  file.read(entry, 0, entry.bytes(), all.data_ptr());
  const at::Tensor experts_first = all.view({param.shape[1], param.shape[2], param.shape[0]}).permute({2, 0, 1}).contiguous();
  dst.values.copy_(experts_first.view(-1).narrow(0, dst.begin, dst.values.numel()));
}

/// This rank's part of a parameter that the adapter has.
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

void init_lora(const ModelSpec& spec, std::uint64_t seed, const ParamAccess& access) {
  for (int u = 0; u < spec.num_units(); ++u)
    for (const auto& param : spec.units[static_cast<std::size_t>(u)].params) {
      if (param.role == Role::base) continue;
      const Shard dst = access(u, param);
      if (dst.values.numel() == 0) continue;
      switch (param.role) {
        case Role::base:
          break;
        case Role::lora_a:
          fill_uniform(param, seed, dst);
          break;
        case Role::lora_b:
          dst.values.zero_();
          break;
      }
    }
}

void require_adapter(const ModelSpec& spec, const std::filesystem::path& dir) {
  const auto file = open_adapter(dir);
  std::size_t used = 0;
  for (const auto& unit : spec.units)
    for (const auto& param : unit.params) {
      for (const FileTensor& part : spec.in_adapter(param)) {
        require_shape(*file, factor_of(*file, part.name), part.shape);
        ++used;
      }
    }
  require_all_used(*file, used);
}

void load_adapter(const ModelSpec& spec, const std::filesystem::path& dir, const ParamAccess& access) {
  require_adapter(spec, dir);
  const auto file = open_adapter(dir);
  for (int u = 0; u < spec.num_units(); ++u)
    for (const auto& param : spec.units[static_cast<std::size_t>(u)].params)
      if (!spec.in_adapter(param).empty()) read_from_adapter(*file, spec, param, access(u, param));
}

}  // namespace qft::model
