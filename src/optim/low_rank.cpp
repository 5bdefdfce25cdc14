#include "low_rank.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <string_view>

#include "singular_vectors.h"
#include <ATen/TensorOperators.h>
#include <ATen/ops/mm.h>

namespace qft::optim {
namespace {

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
