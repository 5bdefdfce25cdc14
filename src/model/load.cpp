#include "qft/model/load.h"

#include "qft/core/error.h"
#include "qft/device/scalar_type.h"

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "tensor_check.h"
#include <ATen/ops/empty.h>

namespace qft::model {
namespace {

constexpr std::int64_t kPieceBytes = 8 << 20;

}  // namespace

std::int64_t read_into(const io::TensorFile& file, const io::TensorEntry& entry, const ParamSpec& param, const Shard& dst) {
  require_shape(file, entry, param.shape);
  const at::ScalarType type = device::scalar_type_of(entry.dtype);
  const auto item = static_cast<std::int64_t>(size_of(entry.dtype));
  const std::int64_t total = dst.values.numel();
  if (total == 0) return 0;
  const BoxRange whole{Box::whole(param.shape), 0, entry.elements()};
  const auto read = [&](std::int64_t first, std::int64_t count, void* to) {
    const auto begin = static_cast<std::uint64_t>(dst.begin + first), width = static_cast<std::uint64_t>(item);
    std::uint64_t missing = static_cast<std::uint64_t>(count);
    for_each_common_run({param.box, begin, begin + missing}, whole, [&](const CommonRun& run) {
      file.read(entry, run.b * width, run.count * width, static_cast<char*>(to) + run.a * width);
      missing -= run.count;
    });
    QFT_ASSERT(missing == 0, "'{}': {} elements from {} on are not in its box {}", param.name, count, begin,
               param.box.describe());
  };
  if (dst.values.is_cpu() && dst.values.scalar_type() == type) {
    read(0, total, dst.values.data_ptr());
    return total * item;
  }
  const std::int64_t piece = kPieceBytes / item;
  const at::Tensor staging = at::empty({std::min(piece, total)}, at::TensorOptions().dtype(type));
  for (std::int64_t first = 0; first < total; first += piece) {
    const std::int64_t n = std::min(piece, total - first);
    read(first, n, staging.data_ptr());
    dst.values.narrow(0, first, n).copy_(staging.narrow(0, 0, n));
  }
  return total * item;
}

void require_base_weights(const ModelSpec& spec, const io::ModelFiles& files) {
  refuse_unexpected(spec, files);
  for (const auto& unit : spec.units)
    for (const auto& param : unit.params) {
      if (param.role != Role::base) continue;
      const io::TensorLocation& where = files.at(param.name);
      require_shape(*where.file, *where.entry, param.shape);
    }
}

std::int64_t load_base_weights(const ModelSpec& spec, const io::ModelFiles& files, const ParamAccess& access) {
  require_base_weights(spec, files);
  std::int64_t bytes = 0;
  for (int u = 0; u < spec.num_units(); ++u)
    for (const auto& param : spec.units[static_cast<std::size_t>(u)].params) {
      if (param.role != Role::base) continue;
      const io::TensorLocation& where = files.at(param.name);
      bytes += read_into(*where.file, *where.entry, param, access(u, param));
    }
  return bytes;
}

}  // namespace qft::model
