// Merges OFT into base weights: W R^T, computed as rows times the blocks of R^T.
#include "qft/core/convert.h"
#include "qft/core/error.h"
#include "qft/ops/cayley.h"

#include <cmath>
#include <cstring>
#include <utility>

#include "../row_parts.h"
#include "../tensor_check.h"
#include "merge.h"

namespace qft::model {
namespace {

/// A square matrix, row by row.
struct SquareMatrix {
  std::size_t n;
  std::vector<double> v;

  explicit SquareMatrix(std::size_t size) : n(size), v(size * size) {}
  double& at(std::size_t i, std::size_t j) { return v[i * n + j]; }
  double at(std::size_t i, std::size_t j) const { return v[i * n + j]; }
};

SquareMatrix multiply(const SquareMatrix& a, const SquareMatrix& b) {
  SquareMatrix out(a.n);
  for (std::size_t i = 0; i < a.n; ++i)
    for (std::size_t k = 0; k < a.n; ++k)
      for (std::size_t j = 0; j < a.n; ++j) out.at(i, j) += a.at(i, k) * b.at(k, j);
  return out;
}

/// Solves a X = b by Gauss-Jordan elimination with pivoting. `a` is I plus a skew-symmetric matrix and therefore invertible.
SquareMatrix solve(SquareMatrix a, SquareMatrix b) {
  for (std::size_t k = 0; k < a.n; ++k) {
    std::size_t pivot = k;
    for (std::size_t i = k + 1; i < a.n; ++i)
      if (std::abs(a.at(i, k)) > std::abs(a.at(pivot, k))) pivot = i;
    for (std::size_t j = 0; j < a.n; ++j) {
      std::swap(a.at(k, j), a.at(pivot, j));
      std::swap(b.at(k, j), b.at(pivot, j));
    }
    const double scale = 1.0 / a.at(k, k);
    for (std::size_t j = 0; j < a.n; ++j) a.at(k, j) *= scale, b.at(k, j) *= scale;
    for (std::size_t i = 0; i < a.n; ++i) {
      const double factor = i == k ? 0.0 : a.at(i, k);
      for (std::size_t j = 0; factor != 0.0 && j < a.n; ++j) {
        a.at(i, j) -= factor * a.at(k, j);
        b.at(i, j) -= factor * b.at(k, j);
      }
    }
  }
  return b;
}

/// Returns R^T - I of the block with these elements of Q above the diagonal. R^T is R for -Q.
SquareMatrix inverse_rotation(const float* upper, std::size_t n, ops::CayleyTerms terms) {
  SquareMatrix minus(n);  // -Q
  for (std::size_t i = 0; i < n; ++i)
    for (std::size_t j = i + 1; j < n; ++j) {
      minus.at(j, i) = static_cast<double>(*upper++);
      minus.at(i, j) = -minus.at(j, i);
    }
  if (terms == ops::kCayleyExact) {  // R^T = (I - Q)^-1 (I + Q)
    SquareMatrix left = minus, right = minus;
    for (std::size_t i = 0; i < n; ++i) left.at(i, i) += 1.0;
    for (double& value : right.v) value *= -2.0;
    return solve(std::move(left), std::move(right));
  }
  const std::vector<double> series = ops::cayley_series(terms);
  SquareMatrix sum(n);
  for (std::size_t k = series.size(); k-- > 0;) {
    for (std::size_t i = 0; i < n; ++i) sum.at(i, i) += series[k];
    sum = multiply(minus, sum);
  }
  return sum;
}

class Rotation final : public WeightChange {
 public:
  Rotation(const OftConfig& config, const io::TensorFile& file, const ChangedWeight& weight)
      : columns_(weight.base->shape.back()), block_(config.block_of(columns_)) {
    const ParamSpec& skew = *weight.params.front();
    const std::int64_t blocks = skew.shape[0], elements = skew.shape[1];
    std::vector<float> values(static_cast<std::size_t>(blocks * elements));
    file.read_floats(factor_of(file, skew.name), values.data());
    for (std::int64_t b = 0; b < blocks; ++b)
      inverse_rotations_.push_back(
          inverse_rotation(values.data() + b * elements, static_cast<std::size_t>(block_), config.cayley()));
  }

  void apply(DType from_type, const char* from, DType to_type, char* to, std::int64_t columns, std::int64_t /*first*/,
             std::int64_t count) const override {
    QFT_ASSERT(columns == columns_, "{} columns given to a rotation of {}", columns, columns_);
    const auto from_bytes = columns * static_cast<std::int64_t>(size_of(from_type)),
               to_bytes = columns * static_cast<std::int64_t>(size_of(to_type));
    for_row_parts(count, [&](std::int64_t begin, std::int64_t end) {
      std::vector<double> row(static_cast<std::size_t>(columns)), rotated;
      for (std::int64_t r = begin; r < end; ++r) {
        read(from_type, from + r * from_bytes, row);
        rotate(row, rotated);
        write(to_type, to + r * to_bytes, rotated);
      }
    });
  }

 private:
  void rotate(const std::vector<double>& row, std::vector<double>& rotated) const {
    rotated = row;
    const auto n = static_cast<std::size_t>(block_);
    for (std::size_t first = 0, b = 0; first < row.size(); first += n, ++b) {
      const SquareMatrix& inverse = inverse_rotations_[inverse_rotations_.size() == 1 ? 0 : b];
      for (std::size_t k = 0; k < n; ++k)
        for (std::size_t j = 0; j < n; ++j) rotated[first + j] += row[first + k] * inverse.at(k, j);
    }
  }

  static void read(DType type, const char* from, std::vector<double>& row) {
    if (type == DType::f64) return void(std::memcpy(row.data(), from, row.size() * sizeof(double)));
    std::vector<float> values(row.size());
    to_float(type, from, values.size(), values.data());
    row.assign(values.begin(), values.end());
  }

  static void write(DType type, char* to, const std::vector<double>& row) {
    if (type == DType::f64) return void(std::memcpy(to, row.data(), row.size() * sizeof(double)));
    const std::vector<float> values(row.begin(), row.end());
    from_float(type, values.data(), values.size(), to);
  }

  std::int64_t columns_, block_;
  std::vector<SquareMatrix> inverse_rotations_;  ///< R^T - I of each block, or of one shared by all
};

}  // namespace

std::unique_ptr<WeightChange> oft_change(const OftConfig& config, const io::TensorFile& file, const ChangedWeight& weight) {
  return std::make_unique<Rotation>(config, file, weight);
}

}  // namespace qft::model
