// Adafactor (Shazeer & Stern 2018, algorithms 4 and 5), as transformers' with scale_parameter and relative_step off, the
// Trainer's settings: stores a matrix's second moments as the product of row means and column means.
#include <cmath>

#include "rules.h"
#include <ATen/TensorOperators.h>
#include <ATen/ops/zeros.h>

namespace qft::optim {
namespace {

constexpr double kEps = 1e-30, kClip = 1.0, kDecayRate = -0.8;  // transformers' defaults, which its Trainer keeps

class Adafactor : public Rule {
 public:
  explicit Adafactor(const Hyper& /*hyper*/) {}
  bool step(const Update& /*update*/) override { return false; }  // every parameter is whole

  void compute_update(const WholeUpdate& u) override {
    const at::ScalarType wide = u.state[0].scalar_type();
    const double beta2 = 1.0 - std::pow(static_cast<double>(u.step), kDecayRate);
    at::Tensor sum = at::zeros({}, u.state[0].options());
    for (std::int64_t i = 0; i < u.values.size(0); ++i) {  // matrix by matrix, because a stack may be large
      const at::Tensor values = u.values[i];
      const at::Tensor g = values.to(wide), squares = g.square().add_(kEps);
      const at::Tensor update =
          u.state.size() == 2 ? factored(u.state[0][i], u.state[1][i], squares, beta2) : full(u.state[0], squares, beta2);
      update.mul_(g);
      sum.add_(update.square().sum());
      values.copy_(update);
    }
    const at::Tensor rms = sum.div_(static_cast<double>(u.values.numel())).sqrt_();
    u.values.div_(rms.div_(kClip).clamp_min_(1.0));
  }

 private:
  static at::Tensor full(const at::Tensor& second, const at::Tensor& squares, double beta2) {
    second.view(squares.sizes()).mul_(beta2).add_(squares, 1.0 - beta2);
    return second.view(squares.sizes()).rsqrt();
  }
  static at::Tensor factored(const at::Tensor& rows, const at::Tensor& columns, const at::Tensor& squares, double beta2) {
    rows.mul_(beta2).add_(squares.mean(-1), 1.0 - beta2);
    columns.mul_(beta2).add_(squares.mean(-2), 1.0 - beta2);
    return rows.div(rows.mean()).rsqrt_().unsqueeze(-1).mul(columns.rsqrt().unsqueeze(-2));
  }
};

std::vector<StateSpec> adafactor_state(const Param& param, const Hyper& /*hyper*/, const Precision& precision) {
  const at::ScalarType type = precision.state == at::kDouble ? at::kDouble : at::kFloat;
  if (!param.is_matrix()) return {{"exp_avg_sq", type, param.shape, 0}};
  const Shape stack = param.as_stack();
  return {{"exp_avg_sq_row", type, {stack[0], stack[1]}, 0}, {"exp_avg_sq_col", type, {stack[0], stack[2]}, 0}};
}

bool adafactor_whole(const Param& /*param*/) {
  return true;
}

}  // namespace

RuleSpec adafactor_rule() {
  return {.make = make_rule<Adafactor>, .state_of = adafactor_state, .whole = adafactor_whole};
}

}  // namespace qft::optim
