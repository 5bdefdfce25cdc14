#include "singular_vectors.h"

#include <algorithm>
#include <limits>
#include <tuple>

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/eye.h>
#include <ATen/ops/linalg_qr.h>
#include <ATen/ops/linalg_svd.h>
#include <ATen/ops/where.h>

namespace qft::optim {
namespace {

/// Returns the number of singular values, in descending order, that exceed the rounding error of 0.
std::int64_t rank_of(const at::Tensor& g, const at::Tensor& values) {
  const double epsilon =
      g.scalar_type() == at::kDouble ? std::numeric_limits<double>::epsilon() : std::numeric_limits<float>::epsilon();
  const double least = values[0].item<double>() * static_cast<double>(std::max(g.size(0), g.size(1))) * epsilon;
  return values.gt(least).sum().item<std::int64_t>();
}

/// Returns the vectors [., count] with signs that make the largest element of each positive.
at::Tensor with_signs(const at::Tensor& vectors) {
  const at::Tensor largest = vectors.gather(0, vectors.abs().argmax(0, /*keepdim=*/true));
  return vectors * at::where(largest.lt(0.0), -1.0, 1.0);
}

}  // namespace

at::Tensor first_singular_vectors(const at::Tensor& g, std::int64_t count, bool right) {
  const auto [left_vectors, values, right_vectors] = at::linalg_svd(g, /*full_matrices=*/false);
  at::Tensor vectors = right ? right_vectors.narrow(0, 0, count).t() : left_vectors.narrow(1, 0, count);
  const std::int64_t rank = rank_of(g, values), rest = count - rank;
  if (rank < values.numel()) vectors = with_signs(vectors);
  if (rest > 0) {
    const at::Tensor known = vectors.narrow(1, 0, rank), axes = at::eye(vectors.size(0), rest, g.options());
    const at::Tensor basis = std::get<0>(at::linalg_qr(at::cat({known, axes}, 1)));
    vectors = at::cat({known, with_signs(basis.narrow(1, rank, rest))}, 1);
  }
  return right ? vectors.t() : vectors;
}

}  // namespace qft::optim
