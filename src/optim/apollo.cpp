// APOLLO (Zhu et al. 2024, "APOLLO: SGD-like Memory, AdamW-level Performance"), as in apollo_torch: AdamW's moments of a matrix's
// gradient in a low-rank space determine the scale of each channel, or of the whole gradient.
#include <array>
#include <cmath>

#include "low_rank.h"
#include "rules.h"
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/where.h>

namespace qft::optim {
namespace {

constexpr double kApolloScale = 1.0;
constexpr std::array<std::string_view, 2> kSpaces = {"random", "svd"}, kScales = {"channel", "tensor"};
/// Limit on the growth of the norm from one step to the next (Fira, Chen et al. 2024).
constexpr double kGrowth = 1.01, kTiny = 1e-8;

/// Returns a different seed for each matrix and each draw.
std::uint64_t seed_of(std::uint64_t parameter, std::int64_t matrix, std::int64_t step) {
  std::uint64_t seed = parameter;
  for (const auto next : {static_cast<std::uint64_t>(matrix), static_cast<std::uint64_t>(step)}) {
    seed = (seed ^ (seed >> 31)) * 0x9e3779b97f4a7c15U + next + 1;  // a step of splitmix64
  }
  return seed ^ (seed >> 29);
}

class Apollo : public Rule {
 public:
  explicit Apollo(const Hyper& hyper)
      : hyper_(hyper),
        space_(hyper.args, kApolloScale),
        random_(hyper.args.choice("proj", kSpaces[0], kSpaces) == "random"),
        channels_(hyper.args.choice("scale_type", kScales[0], kScales) == "channel"),
        front_(hyper.args.flag("scale_front", false)),
        adamw_(make_adamw(hyper)) {}

  bool step(const Update& u) override { return adamw_->step(u); }

  void compute_update(const WholeUpdate& u) override {
    const double correction = bias_correction(hyper_, u.step);
    for (std::int64_t i = 0; i < u.values.size(0); ++i) {
      const bool right = space_.from_right(u.values.size(1), u.values.size(2));
      const at::Tensor vectors = u.state[0][i], g = u.values[i].to(vectors.scalar_type());
      if (space_.is_due(u.step)) find(g, right, vectors, seed_of(u.parameter, i, u.step));
      const at::Tensor low = to_low_rank(g, vectors, right);
      const at::Tensor scaled = g.mul(factors(low, moments_step(hyper_, low, u.state[1][i], u.state[2][i]), right));
      if (front_) scaled.mul_(std::sqrt(space_.scale()));
      limit(scaled, u.state[3][i]);
      u.values[i].copy_(scaled.mul_(front_ ? correction : correction * std::sqrt(space_.scale())));
    }
  }

 private:
  void find(const at::Tensor& gradient, bool right, const at::Tensor& vectors, std::uint64_t seed) const {
    if (!random_) return find_singular_vectors(gradient, right, vectors);
    // Drawn on the host, to be the same on every kind of device.
    const at::Tensor drawn = at::randn(vectors.sizes(), at::detail::createCPUGenerator(seed), at::kFloat);
    vectors.copy_(drawn).div_(std::sqrt(static_cast<double>(vectors.size(right ? 0 : 1))));
  }

  /// Returns how much larger AdamW's step is than the gradient: [rows, 1] or [1, columns] per channel, otherwise a scalar.
  at::Tensor factors(const at::Tensor& low, const at::Tensor& step, bool right) const {
    const auto norm = [&](const at::Tensor& t) {
      return channels_ ? at::linalg_vector_norm(t, 2, right ? 1 : 0, /*keepdim=*/true) : at::linalg_vector_norm(t);
    };
    return norm(step).div_(norm(low).add_(kTiny));
  }

  /// `before`: norm of the last step, initially 0.
  static void limit(const at::Tensor& scaled, const at::Tensor& before) {
    const at::Tensor norm = at::linalg_vector_norm(scaled);
    const at::Tensor growth = norm.div(before.add(kTiny)).clamp_min_(kGrowth).div_(kGrowth);
    const at::Tensor limiter = at::where(before.gt(0), growth, at::ones_like(growth));
    scaled.div_(limiter);
    before.copy_(norm.div_(limiter));
  }

  Hyper hyper_;
  LowRank space_;
  bool random_, channels_, front_;
  std::unique_ptr<Rule> adamw_;
};

std::vector<StateSpec> apollo_state(const Param& param, const Hyper& hyper, const Precision& precision) {
  if (!of_layer(param)) return elementwise(kAdamWState, param, precision);
  std::vector<StateSpec> states = LowRank(hyper.args, kApolloScale).states(param.as_stack(), precision);
  states.push_back({"step_norm", states[0].type, {param.as_stack()[0]}, 0});
  return states;
}

}  // namespace

RuleSpec apollo_rule() {
  return {.make = make_rule<Apollo>,
          .args = {"rank", "update_proj_gap", "scale", "proj_type", "proj", "scale_type", "scale_front"},
          .state_of = apollo_state,
          .whole = of_layer};
}

}  // namespace qft::optim
