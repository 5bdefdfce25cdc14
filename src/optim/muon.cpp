// Muon (Jordan et al. 2024; Liu et al. 2025, "Muon is Scalable for LLM Training") with the update of torch.optim.Muon:
// element-wise momentum, with matrices nearly orthogonalised by five Newton-Schulz iterations.
#include <algorithm>
#include <array>
#include <cmath>

#include "rules.h"
#include <ATen/TensorOperators.h>
#include <ATen/ops/baddbmm.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/linalg_vector_norm.h>

namespace qft::optim {
namespace {

constexpr double kA = 3.4445, kB = -4.7750, kC = 2.0315, kLeastNorm = 1e-7;
constexpr std::int64_t kSteps = 5;
constexpr std::array<std::string_view, 2> kAdjustments = {"match_rms_adamw", "original"};

/// Takes [matrices, rows, columns]. Uses bf16 on an accelerator, like torch. A CPU multiplies fp32 no slower, and fp64 stays
/// fp64.
at::Tensor orthogonal(const at::Tensor& values, std::int64_t steps) {
  const at::ScalarType type = values.scalar_type() == at::kDouble ? at::kDouble : values.is_cpu() ? at::kFloat : at::kBFloat16;
  const bool tall = values.size(1) > values.size(2);
  at::Tensor x = values.to(type, /*non_blocking=*/false, /*copy=*/true);
  if (tall) x = x.mT();
  x.div_(at::linalg_vector_norm(x, 2, {1, 2}, /*keepdim=*/true).clamp_min_(kLeastNorm));
  for (std::int64_t i = 0; i < steps; ++i) {
    const at::Tensor gram = at::bmm(x, x.mT());
    x = at::baddbmm(x, at::baddbmm(gram, gram, gram, kB, kC), x, kA);
  }
  return tall ? x.mT() : x;
}

class Muon : public Rule {
 public:
  explicit Muon(const Hyper& hyper)
      : momentum_(hyper.args.number("momentum", 0.95, 0.0, 1.0)),
        nesterov_(hyper.args.flag("nesterov", true)),
        steps_(hyper.args.count("ns_steps", kSteps, 99)),
        like_adamw_(hyper.args.choice("adjust_lr_fn", kAdjustments[0], kAdjustments) == kAdjustments[0]),
        adamw_(make_adamw(hyper)) {}

  bool step(const Update& u) override { return adamw_->step(u); }

  void prepare(const Update& u) override {
    in_pieces(u, [&](const Update& piece) {
      const at::Tensor g = piece.grads.mul(u.grad_scale);
      piece.state[0].lerp_(g, 1.0 - momentum_);
      const std::int64_t begin = piece.first - u.first;
      u.grads.narrow(0, begin, g.numel()).copy_(nesterov_ ? g.lerp_(piece.state[0], momentum_) : piece.state[0]);
    });
  }

  void compute_update(const WholeUpdate& u) override {
    const auto rows = static_cast<double>(u.values.size(1)), columns = static_cast<double>(u.values.size(2));
    const double factor = like_adamw_ ? 0.2 * std::sqrt(std::max(rows, columns)) : std::sqrt(std::max(1.0, rows / columns));
    for (std::int64_t i = 0; i < u.values.size(0); ++i) {
      const at::Tensor matrix = u.values.narrow(0, i, 1);
      matrix.copy_(orthogonal(matrix, steps_));
      matrix.mul_(factor);
    }
  }

 private:
  double momentum_;
  bool nesterov_;
  std::int64_t steps_;
  bool like_adamw_;  ///< scale updates to AdamW's usual size, so that one learning rate suits both
  std::unique_ptr<Rule> adamw_;
};

std::vector<StateSpec> muon_state(const Param& param, const Hyper& /*hyper*/, const Precision& precision) {
  constexpr std::array<std::string_view, 1> kMuon = {"momentum_buffer"};
  return of_layer(param) ? elementwise(kMuon, param, precision) : elementwise(kAdamWState, param, precision);
}

double muon_operations(const Param& param) {
  const Shape stack = param.as_stack();
  const auto less = static_cast<double>(std::min(stack[1], stack[2])), more = static_cast<double>(std::max(stack[1], stack[2]));
  return static_cast<double>(stack[0]) * kSteps * (4 * less * less * more + 2 * less * less * less);
}

}  // namespace

RuleSpec muon_rule() {
  return {.make = make_rule<Muon>,
          .args = {"momentum", "nesterov", "ns_steps", "adjust_lr_fn"},
          .state_of = muon_state,
          .whole = of_layer,
          .operations = muon_operations};
}

}  // namespace qft::optim
