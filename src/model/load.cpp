#include "qft/model/load.h"

#include <algorithm>
#include <array>
#include <set>
#include <utility>
#include <vector>

#include <ATen/ops/empty.h>
#include <fmt/ranges.h>

#include "qft/core/error.h"

namespace qft::model {
namespace {

constexpr std::array<std::pair<at::ScalarType, DType>, 10> kTypes{{{at::kDouble, DType::f64},
                                                                   {at::kFloat, DType::f32},
                                                                   {at::kHalf, DType::f16},
                                                                   {at::kBFloat16, DType::bf16},
                                                                   {at::kLong, DType::i64},
                                                                   {at::kInt, DType::i32},
                                                                   {at::kShort, DType::i16},
                                                                   {at::kChar, DType::i8},
                                                                   {at::kByte, DType::u8},
                                                                   {at::kBool, DType::boolean}}};

constexpr std::int64_t kPieceBytes = 8 << 20;

bool is_floating(DType t) { return t == DType::f64 || t == DType::f32 || t == DType::f16 || t == DType::bf16; }

/// Tensors that files may hold beside the parameters: derived values, and the second name of a tied head.
bool is_redundant(const std::string& name, const ModelConfig& config) {
  return name.ends_with("rotary_emb.inv_freq") || (config.tie_word_embeddings && name == "lm_head.weight");
}

void refuse_unexpected(const ModelSpec& spec, const io::ModelFiles& files, const std::set<std::string>& known) {
  std::vector<std::string> unexpected;
  for (const auto& name : files.names())
    if (!known.count(name) && !is_redundant(name, spec.config)) unexpected.push_back(name);
  if (unexpected.empty()) return;
  const std::size_t n = unexpected.size();
  unexpected.resize(std::min<std::size_t>(n, 3));
  fail("'{}': {} tensors do not belong to a {} model, e.g. {}: does config.json's model_type fit the files?",
       files.dir().string(), n, spec.config.architecture, fmt::join(unexpected, ", "));
}

}  // namespace

DType dtype_of(at::ScalarType type) {
  for (const auto& [scalar, dtype] : kTypes)
    if (scalar == type) return dtype;
  fail("element type {} has no file representation", c10::toString(type));
}

at::ScalarType scalar_type_of(DType dtype) {
  for (const auto& [scalar, own] : kTypes)
    if (own == dtype) return scalar;
  fail("element type {} is unknown to LibTorch", safetensors_name(dtype));
}

std::int64_t read_into(const io::SafetensorsFile& file, const io::TensorEntry& entry,
                       const std::vector<std::int64_t>& shape, const ParamSlice& dst) {
  require(entry.shape == shape, "'{}': tensor '{}' has shape [{}], the model's config.json asks for [{}]",
          file.path().string(), entry.name, fmt::join(entry.shape, ", "), fmt::join(shape, ", "));
  require(is_floating(entry.dtype),
          "'{}': tensor '{}' has dtype {}: expected F32, BF16, F16 or F64 (quantised models are not implemented)",
          file.path().string(), entry.name, safetensors_name(entry.dtype));
  const at::ScalarType type = scalar_type_of(entry.dtype);
  const auto item = static_cast<std::int64_t>(size_of(entry.dtype));
  const std::int64_t total = dst.values.numel();
  if (total == 0) return 0;
  const auto read = [&](std::int64_t first, std::int64_t count, void* to) {
    file.read(entry, static_cast<std::uint64_t>((dst.begin + first) * item), static_cast<std::uint64_t>(count * item), to);
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

std::int64_t load_base_weights(const ModelSpec& spec, const io::ModelFiles& files, const ParamAccess& access) {
  std::set<std::string> known;
  for (const auto& unit : spec.units)
    for (const auto& param : unit.params)
      if (param.role == Role::base) known.insert(param.name);
  refuse_unexpected(spec, files, known);
  std::int64_t bytes = 0;
  for (int u = 0; u < spec.num_units(); ++u)
    for (const auto& param : spec.units[static_cast<std::size_t>(u)].params) {
      if (param.role != Role::base) continue;
      const io::TensorLocation& where = files.at(param.name);
      bytes += read_into(*where.file, *where.entry, param.shape, access(u, param));
    }
  return bytes;
}

}  // namespace qft::model
