#include "adapter_merge.h"

#include "qft/core/convert.h"
#include "qft/ops/cpu/kernels.h"

#include <cstring>
#include <utility>

#include "tensor_check.h"

namespace qft::model {
namespace {

constexpr std::int64_t kColumns = 2048;  // of a row at once: their sums stay in the first-level cache

std::vector<float> read_factor(const io::TensorFile& file, const ParamSpec& factor) {
  std::vector<float> all;
  for (const FileTensor& part : factor.in_files()) {
    const io::TensorEntry& entry = factor_of(file, part.name);
    std::vector<char> bytes(entry.bytes());
    file.read(entry, 0, bytes.size(), bytes.data());
    all.resize(all.size() + entry.elements());
    to_float(entry.dtype, bytes.data(), entry.elements(), all.data() + all.size() - entry.elements());
  }
  if (!factor.experts_last) return all;
  std::vector<float> experts_first(all.size());
  const auto experts = static_cast<std::size_t>(factor.shape[0]), values = all.size() / experts;
  for (std::size_t i = 0; i < values; ++i)
    for (std::size_t e = 0; e < experts; ++e) experts_first[e * values + i] = all[i * experts + e];
  return experts_first;
}

/// to[columns] = from[columns] + scaling * b A, with b [rank] one row of B; `from` may be `to` where the types are one. `sums`
/// and `values` have room for a row.
void merge_row(DType from_type, const char* from, DType to_type, char* to, const float* b, const float* a, std::int64_t rank,
               std::int64_t columns, float scaling, std::vector<float>& sums, std::vector<float>& values) {
  const auto kernels = ops::cpu::activation_kernels<float>();
  std::fill(sums.begin(), sums.end(), 0.0F);
  for (std::int64_t first = 0; first < columns; first += kColumns) {
    const std::int64_t n = std::min(kColumns, columns - first);
    for (std::int64_t k = 0; k < rank; ++k) kernels.add_to_float(sums.data() + first, a + k * columns + first, b[k], n);
  }
  const auto count = static_cast<std::size_t>(columns);
  if (from_type == DType::f64 && to_type == DType::f64) {
    std::vector<double> wide(count);
    std::memcpy(wide.data(), from, count * sizeof(double));
    for (std::size_t i = 0; i < count; ++i) wide[i] += static_cast<double>(scaling) * static_cast<double>(sums[i]);
    std::memcpy(to, wide.data(), count * sizeof(double));
    return;
  }
  to_float(from_type, from, count, values.data());
  kernels.add_to_float(values.data(), sums.data(), scaling, columns);
  from_float(to_type, values.data(), count, to);
}

}  // namespace

Factors::Factors(const io::TensorFile& file, const ParamSpec& a, const ParamSpec& b, std::vector<LoraRows> rows, std::int64_t out)
    : a_(read_factor(file, a)),
      b_(read_factor(file, b)),
      rows_(std::move(rows)),
      out_(out),
      in_(a.shape.back()),
      rank_(b.shape.back()) {
  for (const LoraRows& part : rows_) b_rows_ += part.rows;
}

Factors::Row Factors::at(std::int64_t row) const {
  const std::int64_t expert = row / out_, within = row % out_;
  std::int64_t rank0 = expert * rank_ * std::ssize(rows_), b_row = expert * b_rows_;
  for (const LoraRows& part : rows_) {
    if (within >= part.row0 && within < part.row0 + part.rows)
      return {b_.data() + (b_row + within - part.row0) * rank_, a_.data() + rank0 * in_};
    rank0 += rank_;
    b_row += part.rows;
  }
  return {};
}

Adapter::Adapter(const ModelSpec& spec, const std::filesystem::path& dir) : file_(open_adapter(dir)) {
  std::size_t used = 0;
  for (const UnitSpec& unit : spec.units)
    for (const ParamSpec& param : unit.params) {
      for (const FileTensor& part : spec.in_adapter(param)) {
        const io::TensorEntry& entry = factor_of(*file_, part.name);
        require_shape(*file_, entry, part.shape);
        if (param.role == Role::base) saved_[param.name] = {file_.get(), &entry};
        ++used;
      }
      if (!is_factor(param.role)) continue;
      Pair& pair = pairs_[base_weight_of(param)];
      (param.role == Role::lora_a ? pair.a : pair.b) = &param;
      pair.layer = unit.layer;
    }
  require_all_used(*file_, used);
  for (auto& [name, pair] : pairs_) pair.rows = rows_of(spec, pair, name);
}

std::optional<Factors> Adapter::find(const ParamSpec& base) const {
  const auto it = pairs_.find(base.name);
  if (it == pairs_.end()) return {};
  const std::int64_t out = base.shape[base.shape.size() - 2];
  return Factors(*file_, *it->second.a, *it->second.b, it->second.rows, out);
}

const io::TensorLocation* Adapter::saved(const ParamSpec& base) const {
  const auto it = saved_.find(base.name);
  return it == saved_.end() ? nullptr : &it->second;
}

/// All rows of a linear; of a stack those of its linears that are wrapped.
std::vector<LoraRows> Adapter::rows_of(const ModelSpec& spec, const Pair& pair, const std::string& base) {
  for (const SubLayerSpec& sublayer : spec.layers[static_cast<std::size_t>(pair.layer)])
    for (const ParamGroup& group : sublayer.params)
      if (group.is_stack() && base.ends_with(group.stack.path + "." + group.stack.name)) return lora_rows(spec.lora, group);
  return {{0, 0, pair.b->shape[0], spec.lora.rank, spec.lora.scaling()}};
}

void merge_rows(DType from_type, const char* from, DType to_type, char* to, std::int64_t columns, std::int64_t first,
                std::int64_t count, const Factors& factors) {
  const auto row_bytes = [&](DType type) { return columns * static_cast<std::int64_t>(size_of(type)); };
  for_row_parts(count, [&](std::int64_t from_row, std::int64_t to_row) {
    std::vector<float> sums(static_cast<std::size_t>(columns)), values(static_cast<std::size_t>(columns));
    for (std::int64_t r = from_row; r < to_row; ++r) {
      const Factors::Row row = factors.at(first + r);
      if (row.b == nullptr && from == to) continue;
      merge_row(from_type, from + r * row_bytes(from_type), to_type, to + r * row_bytes(to_type), row.b, row.a,
                row.b == nullptr ? 0 : factors.rank(), columns, factors.scaling(), sums, values);
    }
  });
}

}  // namespace qft::model
