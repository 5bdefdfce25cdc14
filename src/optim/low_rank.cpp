#include "low_rank.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <string_view>
#include <tuple>

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/eye.h>
#include <ATen/ops/linalg_qr.h>
#include <ATen/ops/linalg_svd.h>
#include <ATen/ops/mm.h>
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

/// Returns the first `count` singular vectors of g [rows, columns], fp32 or fp64: right ones [count, columns], or left ones
/// [rows, count]. If g has a lower rank (an expert with few tokens, or a LoRA matrix), rounding would decide the signs of its
/// vectors, and the vectors without a singular value entirely. So the largest element of each vector is made positive, and the
/// remaining vectors are the axes orthogonalised against the others. Any layout of ranks then finds the same vectors.
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

constexpr std::array<std::string_view, 4> kTypes = {"std", "reverse_std", "left", "right"};

}  // namespace

LowRank::LowRank(const RuleArgs& args, double scale)
    : rank_(args.count("rank", 128, std::numeric_limits<std::int32_t>::max())),
      interval_(args.count("update_proj_gap", 200, std::numeric_limits<std::int32_t>::max())),
      scale_(args.number("scale", scale, 0.0, std::numeric_limits<double>::infinity())),
      type_(args.choice("proj_type", kTypes[0], kTypes)) {}

bool LowRank::from_right(std::int64_t rows, std::int64_t columns) const {
  if (type_ == "left" || type_ == "right") return type_ == "right";
  return (rows >= columns) == (type_ == "std");
}

std::vector<StateSpec> LowRank::states(const Shape& stack, const Precision& precision) const {
  const at::ScalarType type = precision.state == at::kDouble ? at::kDouble : at::kFloat;
  const std::int64_t rank = std::min({rank_, stack[1], stack[2]});
  const bool right = from_right(stack[1], stack[2]);
  const Shape low = right ? Shape{stack[0], stack[1], rank} : Shape{stack[0], rank, stack[2]};
  return {{"projector", type, right ? Shape{stack[0], rank, stack[2]} : Shape{stack[0], stack[1], rank}, 0},
          {"exp_avg", type, low, 0},
          {"exp_avg_sq", type, low, 0}};
}

void find_singular_vectors(const at::Tensor& gradient, bool right, const at::Tensor& vectors) {
  vectors.copy_(first_singular_vectors(gradient, vectors.size(right ? 0 : 1), right));
}

at::Tensor to_low_rank(const at::Tensor& gradient, const at::Tensor& vectors, bool right) {
  return right ? at::mm(gradient, vectors.t()) : at::mm(vectors.t(), gradient);
}

at::Tensor moments_step(const Hyper& hyper, const at::Tensor& low, const at::Tensor& exp_avg, const at::Tensor& exp_avg_sq) {
  exp_avg.mul_(hyper.beta1).add_(low, 1.0 - hyper.beta1);
  exp_avg_sq.mul_(hyper.beta2).addcmul_(low, low, 1.0 - hyper.beta2);
  return exp_avg.div(exp_avg_sq.sqrt().add_(hyper.eps));
}

double bias_correction(const Hyper& hyper, std::int64_t step) {
  const auto t = static_cast<double>(step);
  return std::sqrt(1.0 - std::pow(hyper.beta2, t)) / (1.0 - std::pow(hyper.beta1, t));
}

}  // namespace qft::optim
