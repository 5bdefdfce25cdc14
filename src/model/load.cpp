#include "qft/model/load.h"

#include "qft/comm/exchange.h"
#include "qft/core/error.h"
#include "qft/device/scalar_type.h"
#include "qft/io/tensor_file.h"
#include "qft/model/adapter_config.h"
#include "qft/ops/quantized.h"

#include <algorithm>
#include <cmath>
#include <memory>

#include "adapters/code.h"
#include "initial_values.h"
#include "read_into.h"
#include "stored/stored_format.h"
#include "tensor_check.h"
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

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

/// Calls `visit` with each tensor of the head and its unit.
template <class F>
void for_each_of_head(const ModelSpec& spec, const F& visit) {
  for (const ParamSpec& param : spec.units.back().params)
    if (param.role == Role::value_head) visit(spec.head_unit(), param);
}

struct Place {
  int unit;
  const ParamSpec* param;
};

std::vector<Place> quantized_params(const ModelSpec& spec) {
  std::vector<Place> all;
  for (int u = 0; u < spec.num_units(); ++u)
    for (const ParamSpec& param : spec.units[static_cast<std::size_t>(u)].params)
      if (param.is_quantized()) all.push_back({u, &param});
  return all;
}

/// Returns the parameter's packed bytes, read from files that hold it quantised.
at::Tensor stored(const ParamSpec& param, const StoredFormat& format, const io::ModelFiles& files, std::int64_t& read) {
  const at::Tensor bytes = at::zeros({param.packed_bytes()}, at::kByte);
  auto* to = bytes.data_ptr<std::uint8_t>();
  for (const std::string& weight : stored_weights(param)) {
    read += read_stored(format, files, weight, param.packed, to);
    to += param.packed.bytes;
  }
  return bytes;
}

/// Quantises the parameter's whole tensor from the files and returns its packed bytes; adds the bytes read to `read`.
at::Tensor quantized(const ParamSpec& param, const io::ModelFiles& files, std::int64_t& read) {
  const std::vector<Source> sources = sources_of(param, files);
  const at::ScalarType type = device::scalar_type_of(sources.front().at.entry->dtype);
  const at::Tensor values = at::empty({param.numel}, at::TensorOptions().dtype(type));
  for (const Source& source : sources) read += read_into(source, param, {values, 0});
  const at::Tensor bytes = at::empty({param.packed_bytes()}, at::kByte);
  try {
    ops::quantize(values, param.packed, bytes);
  } catch (const Error& e) {
    fail("'{}': {}: {}", files.dir().string(), param.name, e.what());
  }
  return bytes;
}

/// Copies the part of a parameter's bytes that this rank keeps.
void keep(const ParamSpec& param, const at::Tensor& bytes, const Shard& kept) {
  const std::int64_t begin = std::max(param.packed_offset, kept.begin);
  const std::int64_t end = std::min(param.packed_offset + param.packed_bytes(), kept.end());
  if (begin < end)
    kept.values.narrow(0, begin - kept.begin, end - begin).copy_(bytes.narrow(0, begin - param.packed_offset, end - begin));
}

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
    for_each_common_run(BoxesRange{param.boxes, begin, begin + missing}, whole, [&](const CommonRun& run) {
      source.at.file->read(entry, run.b * width, run.count * width, static_cast<char*>(to) + run.a * width);
      missing -= run.count;
    });
    QFT_ASSERT(missing == 0, "'{}': {} elements starting at {} are outside its boxes of {} elements", param.name, count, begin,
               param.numel);
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

std::int64_t load_quantized_weights(const ModelSpec& spec, const io::ModelFiles& files, const PackedAccess& access,
                                    comm::Communicator& comm) {
  const std::vector<Place> places = quantized_params(spec);
  const auto ranks = static_cast<std::size_t>(comm.size()), rank = static_cast<std::size_t>(comm.rank());
  const auto format = spec.config.stored ? make_stored_format(*spec.config.stored) : nullptr;
  std::int64_t read = 0;
  for (std::size_t first = 0; first < places.size(); first += ranks) {
    at::Tensor mine;
    comm::agreed(comm, [&] {
      if (first + rank >= places.size()) return;
      const ParamSpec& param = *places[first + rank].param;
      mine = format ? stored(param, *format, files, read) : quantized(param, files, read);
    });
    for (std::size_t i = first; i < std::min(first + ranks, places.size()); ++i) {
      const ParamSpec& param = *places[i].param;
      const at::Tensor bytes = i == first + rank ? std::exchange(mine, {}) : at::empty({param.packed_bytes()}, at::kByte);
      comm.host().broadcast(bytes.data_ptr(), static_cast<std::size_t>(param.packed_bytes()), DType::u8,
                            static_cast<int>(i - first));
      keep(param, bytes, access(places[i].unit));
    }
  }
  return read;
}

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
