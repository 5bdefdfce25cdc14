#include "adapter_merge.h"

#include "qft/core/convert.h"
#include "qft/core/error.h"
#include "qft/ops/cpu/kernels.h"
#include "qft/ops/kernel_args.h"

#include <cmath>
#include <cstring>

#include "lora_targets.h"
#include "tensor_check.h"

namespace qft::model {
namespace {

constexpr std::int64_t kColumns = 2048;  // of a row at once: their sums stay in the first-level cache

std::vector<float> read_factor(const io::TensorFile& file, const ParamSpec& factor) {
  std::vector<float> all;
  for (const FileTensor& part : factor.in_files()) {
    const io::TensorEntry& entry = factor_of(file, part.name);
    all.resize(all.size() + entry.elements());
    file.read_floats(entry, all.data() + all.size() - entry.elements());
  }
  if (!factor.experts_last) return all;
  std::vector<float> experts_first(all.size());
  const auto experts = static_cast<std::size_t>(factor.shape[0]), values = all.size() / experts;
  for (std::size_t i = 0; i < values; ++i)
    for (std::size_t e = 0; e < experts; ++e) experts_first[e * values + i] = all[i * experts + e];
  return experts_first;
}

/// Multiplies a row of W + scaling B A by its magnitude over its norm (ops/dora.h).
template <class Number>
void scale_to(float magnitude, std::vector<Number>& row) {
  double squares = 0;
  for (const Number v : row) squares += static_cast<double>(v) * static_cast<double>(v);
  const double factor = static_cast<double>(magnitude) / std::max(std::sqrt(squares), ops::kDoraLeastNorm);
  for (Number& v : row) v = static_cast<Number>(static_cast<double>(v) * factor);
}

/// to[columns] = from[columns] + scaling * b A, with DoRA scaled to its magnitude; `from` may be `to` where the types are one.
/// `sums` and `values` have room for a row.
void merge_row(DType from_type, const char* from, DType to_type, char* to, const Factors::Row& row, std::int64_t columns,
               std::vector<float>& sums, std::vector<float>& values) {
  const auto kernels = ops::cpu::activation_kernels<float>();
  std::fill(sums.begin(), sums.end(), 0.0F);
  for (std::int64_t first = 0; first < columns; first += kColumns) {
    const std::int64_t n = std::min(kColumns, columns - first);
    for (std::int64_t k = 0; k < row.rank; ++k)
      kernels.add_to_float(sums.data() + first, row.a + k * columns + first, row.b[k], n);
  }
  const auto count = static_cast<std::size_t>(columns);
  if (from_type == DType::f64 && to_type == DType::f64) {
    std::vector<double> wide(count);
    std::memcpy(wide.data(), from, count * sizeof(double));
    for (std::size_t i = 0; i < count; ++i) wide[i] += static_cast<double>(row.scaling) * static_cast<double>(sums[i]);
    if (row.magnitude != nullptr) scale_to(*row.magnitude, wide);
    std::memcpy(to, wide.data(), count * sizeof(double));
    return;
  }
  to_float(from_type, from, count, values.data());
  kernels.add_to_float(values.data(), sums.data(), row.scaling, columns);
  if (row.magnitude != nullptr) scale_to(*row.magnitude, values);
  from_float(to_type, values.data(), count, to);
}

}  // namespace

Factors::Factors(const io::TensorFile& file, const AdapterTensors& tensors, std::int64_t out)
    : a_(read_factor(file, *tensors.a)),
      b_(read_factor(file, *tensors.b)),
      rows_(tensors.rows),
      out_(out),
      in_(tensors.a->shape.back()),
      rank_(tensors.b->shape.back()) {
  if (tensors.magnitude != nullptr) magnitudes_ = read_factor(file, *tensors.magnitude);
  for (const LoraRows& part : rows_) b_rows_ += part.rows;
}

Factors::Row Factors::at(std::int64_t row) const {
  const std::int64_t expert = row / out_, within = row % out_;
  std::int64_t rank0 = expert * rank_ * std::ssize(rows_), b_row = expert * b_rows_;
  for (const LoraRows& part : rows_) {
    if (within >= part.row0 && within < part.row0 + part.rows)
      return {b_.data() + (b_row + within - part.row0) * rank_, a_.data() + rank0 * in_, rank_, static_cast<float>(part.scaling),
              magnitudes_.empty() ? nullptr : magnitudes_.data() + row};
    rank0 += rank_;
    b_row += part.rows;
  }
  return {};
}

Adapter::Adapter(const ModelSpec& spec, std::unique_ptr<io::TensorFile> file) : file_(std::move(file)) {
  std::size_t used = 0;
  for (const UnitSpec& unit : spec.units)
    for (const ParamSpec& param : unit.params) {
      for (const FileTensor& part : spec.in_adapter(param)) {
        const io::TensorEntry& entry = factor_of(*file_, part.name);
        require_shape(*file_, entry, part.shape);
        if (spec.in_model(param)) saved_[param.name] = {file_.get(), &entry};
        ++used;
      }
      if (!is_factor(param.role)) continue;
      AdapterTensors& tensors = of_[base_weight_of(param)];
      (param.role == Role::lora_a ? tensors.a : param.role == Role::lora_b ? tensors.b : tensors.magnitude) = &param;
      tensors.layer = unit.layer;
    }
  require_all_used(*file_, used);
  for (auto& [name, tensors] : of_) tensors.rows = rows_of(spec.layers[static_cast<std::size_t>(tensors.layer)], name);
}

std::optional<Factors> Adapter::find(const ParamSpec& base) const {
  const auto it = of_.find(base.name);
  if (it == of_.end()) return {};
  return Factors(*file_, it->second, base.shape[base.shape.size() - 2]);
}

const io::TensorLocation* Adapter::saved(const ParamSpec& base) const {
  const auto it = saved_.find(base.name);
  return it == saved_.end() ? nullptr : &it->second;
}

/// All rows of a linear; of a stack those of its linears that are wrapped.
std::vector<LoraRows> Adapter::rows_of(const Layer& layer, const std::string& base) {
  for (const SubLayerSpec& sublayer : layer)
    for (const ParamGroup& group : sublayer.params) {
      if (group.is_stack() && base.ends_with(fmt::format(".{}", path_of(group.stack)))) return group.lora;
      for (LoraRows rows : group.lora)
        if (base.ends_with(fmt::format(".{}.weight", group.linears[rows.linear].path))) {
          rows.row0 = 0;
          return {rows};
        }
    }
  fail("the adapter has factors for '{}', which is no weight of the model", base);
}

void merge_rows(DType from_type, const char* from, DType to_type, char* to, std::int64_t columns, std::int64_t first,
                std::int64_t count, const Factors& factors) {
  const auto row_bytes = [&](DType type) { return columns * static_cast<std::int64_t>(size_of(type)); };
  for_row_parts(count, [&](std::int64_t from_row, std::int64_t to_row) {
    std::vector<float> sums(static_cast<std::size_t>(columns)), values(static_cast<std::size_t>(columns));
    for (std::int64_t r = from_row; r < to_row; ++r) {
      const Factors::Row row = factors.at(first + r);
      if (row.rank == 0 && from == to) continue;
      merge_row(from_type, from + r * row_bytes(from_type), to_type, to + r * row_bytes(to_type), row, columns, sums, values);
    }
  });
}

}  // namespace qft::model
