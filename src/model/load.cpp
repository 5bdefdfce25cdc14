#include "qft/model/load.h"

#include "qft/core/error.h"
#include "qft/device/scalar_type.h"

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "read_into.h"
#include "stored/stored_format.h"
#include "tensor_check.h"
#include <ATen/ops/empty.h>

namespace qft::model {
namespace {

constexpr std::int64_t kChunkBytes = 8 << 20;

/// Returns the overlap of `dst` with the source: its start in `dst`, and its number of elements. Boxes are whole if a parameter
/// has several tensors in the files.
std::pair<std::int64_t, std::int64_t> common(const Source& source, const ParamSpec& param, const Shard& dst) {
  if (param.parts.empty()) return {0, dst.values.numel()};
  const std::int64_t begin = std::max(dst.begin, source.begin);
  const std::int64_t end = std::min(dst.end(), source.begin + static_cast<std::int64_t>(source.at.entry->elements()));
  return {begin - dst.begin, std::max<std::int64_t>(end - begin, 0)};
}

}  // namespace

std::int64_t read_into(const Source& source, const ParamSpec& param, const Shard& dst) {
  const io::TensorEntry& entry = *source.at.entry;
  const at::ScalarType type = device::scalar_type_of(entry.dtype);
  const auto item = static_cast<std::int64_t>(size_of(entry.dtype));
  const auto [offset, total] = common(source, param, dst);
  if (total == 0) return 0;
  const at::Tensor values = dst.values.narrow(0, offset, total);
  const auto source_begin = static_cast<std::uint64_t>(source.begin);
  const BoxRange whole{Box::whole(param.shape), source_begin, source_begin + entry.elements()};
  const auto read = [&, first_of_all = dst.begin + offset](std::int64_t first, std::int64_t count, void* to) {
    const auto begin = static_cast<std::uint64_t>(first_of_all + first), width = static_cast<std::uint64_t>(item);
    std::uint64_t missing = static_cast<std::uint64_t>(count);
    for_each_common_run({param.box, begin, begin + missing}, whole, [&](const CommonRun& run) {
      source.at.file->read(entry, run.b * width, run.count * width, static_cast<char*>(to) + run.a * width);
      missing -= run.count;
    });
    QFT_ASSERT(missing == 0, "'{}': {} elements starting at {} are outside its box {}", param.name, count, begin,
               param.box.describe());
  };
  if (values.is_cpu() && values.scalar_type() == type) {
    read(0, total, values.data_ptr());
    return total * item;
  }
  const std::int64_t piece = kChunkBytes / item;
  const at::Tensor staging = at::empty({std::min(piece, total)}, at::TensorOptions().dtype(type));
  for (std::int64_t first = 0; first < total; first += piece) {
    const std::int64_t n = std::min(piece, total - first);
    read(first, n, staging.data_ptr());
    values.narrow(0, first, n).copy_(staging.narrow(0, 0, n));
  }
  return total * item;
}

std::vector<std::pair<FileTensor, at::Tensor>> as_in_files(const ParamSpec& param, const at::Tensor& values) {
  const at::Tensor all = param.experts_last ? values.view(param.shape).permute({1, 2, 0}).contiguous().view(-1) : values;
  std::vector<std::pair<FileTensor, at::Tensor>> tensors;
  std::int64_t begin = 0;
  std::vector<FileTensor> parts = param.in_files();
  for (FileTensor& part : parts) {
    const auto count = static_cast<std::int64_t>(Box::whole(part.shape).elements());
    const at::Tensor view = all.narrow(0, begin, count).view(part.shape);
    tensors.emplace_back(std::move(part), view);
    begin += count;
  }
  return tensors;
}

void require_base_weights(const ModelSpec& spec, const io::ModelFiles& files) {
  const auto stored = spec.config.stored ? make_stored_format(*spec.config.stored) : nullptr;
  require_tensors(spec, files, stored.get());
}

WeightStorage weight_storage_of(const StoredQuantization& stored, const io::ModelFiles* files) {
  WeightStorage weight_storage = WeightStorage::in(stored.kind);
  weight_storage.by_file_tensor = true;
  if (files != nullptr)
    weight_storage.format_of = [format = std::shared_ptr(make_stored_format(stored)), files](const std::string& weight) {
      return format->kind(*files, weight);
    };
  return weight_storage;
}

std::int64_t load_base_weights(const ModelSpec& spec, const io::ModelFiles& files, const ParamAccess& access) {
  require_base_weights(spec, files);
  std::int64_t bytes = 0;
  for (int u = 0; u < spec.num_units(); ++u)
    for (const auto& param : spec.units[static_cast<std::size_t>(u)].params) {
      if (param.role != Role::base || param.is_quantized()) continue;
      const Shard dst = access(u, param);
      if (dst.values.numel() == 0) continue;
      for (const Source& source : sources_of(param, files)) bytes += read_into(source, param, dst);
    }
  return bytes;
}

}  // namespace qft::model
