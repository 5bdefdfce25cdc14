// Merges LoRA and DoRA into base weights.
#include "qft/core/convert.h"
#include "qft/core/error.h"
#include "qft/ops/cpu/kernels.h"
#include "qft/ops/kernel_args.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "../row_parts.h"
#include "../tensor_check.h"
#include "merge.h"
#include <fmt/format.h>

namespace qft::model {
namespace {

constexpr std::int64_t kColumns = 2048;  // columns of a row per chunk: the sums stay in the L1 cache

struct Row {
  const float *b = nullptr, *a = nullptr;  ///< [rank], [rank, in]
  std::int64_t rank = 0;                   ///< 0: the row does not change
  float scaling = 0.0F;
  const float* magnitude = nullptr;  ///< DoRA's, or null
};

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

/// Scales a row of W + scaling B A to its magnitude (ops/dora.h).
template <class Number>
void scale_to(float magnitude, std::vector<Number>& row) {
  double squares = 0;
  for (const Number v : row) squares += static_cast<double>(v) * static_cast<double>(v);
  const double factor = static_cast<double>(magnitude) / std::max(std::sqrt(squares), ops::kDoraMinNorm);
  for (Number& v : row) v = static_cast<Number>(static_cast<double>(v) * factor);
}

/// to[columns] = from[columns] + scaling * b A; with DoRA, scaled to its magnitude. `from` may be `to` if the types are equal.
/// `sums` and `values` are buffers for one row.
void merge_row(DType from_type, const char* from, DType to_type, char* to, const Row& row, std::int64_t columns,
               std::vector<float>& sums, std::vector<float>& values) {
  const auto kernels = ops::cpu::add_kernels<float>();
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

/// Returns all rows of a linear; for a stack, the rows of its wrapped linears.
std::vector<LoraRows> rows_of(const Layer& layer, const std::string& base) {
  for (const SubLayerSpec& sublayer : layer)
    for (const ParamGroup& group : sublayer.params) {
      if (group.is_stack() && base.ends_with(fmt::format(".{}", path_of(group.stack)))) return group.lora;
      for (LoraRows rows : group.lora)
        if (base.ends_with(fmt::format(".{}.weight", group.linears[rows.linear].path))) {
          rows.row0 = 0;
          return {rows};
        }
    }
  fail("the adapter has factors for '{}', which is not a weight of the model", base);
}

/// An adapter's tensors for one parameter, in fp32: A [experts, ranks, in], B [experts, rows, rank], magnitudes [rows]; experts
/// is 1 unless the parameter is a stack.
class Factors final : public WeightChange {
 public:
  Factors(const io::TensorFile& file, const ChangedWeight& weight);

  /// to = from + scaling B A; with DoRA, each row is then multiplied by its magnitude over its norm.
  void apply(DType from_type, const char* from, DType to_type, char* to, std::int64_t columns, std::int64_t first,
             std::int64_t count) const override;

 private:
  /// Returns the factors for row `row` of the parameter, viewed as a matrix with `in` columns.
  Row at(std::int64_t row) const;

  std::vector<float> a_, b_, magnitudes_;
  std::vector<LoraRows> rows_;
  std::int64_t out_ = 0, in_ = 0, rank_ = 0, b_rows_ = 0;
};

Factors::Factors(const io::TensorFile& file, const ChangedWeight& weight)
    : rows_(rows_of(*weight.layer, weight.base->name)), out_(weight.base->shape[weight.base->shape.size() - 2]) {
  for (const ParamSpec* p : weight.params) {
    (p->role == Role::lora_a ? a_ : p->role == Role::lora_b ? b_ : magnitudes_) = read_factor(file, *p);
    if (p->role == Role::lora_a) in_ = p->shape.back();
    if (p->role == Role::lora_b) rank_ = p->shape.back();
  }
  for (const LoraRows& part : rows_) b_rows_ += part.rows;
}

Row Factors::at(std::int64_t row) const {
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

void Factors::apply(DType from_type, const char* from, DType to_type, char* to, std::int64_t columns, std::int64_t first,
                    std::int64_t count) const {
  const auto row_bytes = [&](DType type) { return columns * static_cast<std::int64_t>(size_of(type)); };
  for_row_parts(count, [&](std::int64_t from_row, std::int64_t to_row) {
    std::vector<float> sums(static_cast<std::size_t>(columns)), values(static_cast<std::size_t>(columns));
    for (std::int64_t r = from_row; r < to_row; ++r) {
      const Row row = at(first + r);
      if (row.rank == 0 && from == to) continue;
      merge_row(from_type, from + r * row_bytes(from_type), to_type, to + r * row_bytes(to_type), row, columns, sums, values);
    }
  });
}

}  // namespace

std::unique_ptr<WeightChange> lora_change(const io::TensorFile& file, const ChangedWeight& weight) {
  return std::make_unique<Factors>(file, weight);
}

}  // namespace qft::model
