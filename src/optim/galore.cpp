// GaLore (Zhao et al. 2024, "Memory-Efficient LLM Training by Gradient Low-Rank Projection") over AdamW, as galore_torch has it:
// the moments are those of a matrix' gradient in the space of its first singular vectors, which are found anew every few steps.
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "rules.h"
#include <ATen/OpMathType.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/linalg_svd.h>
#include <ATen/ops/mm.h>

namespace qft::optim {
namespace {

constexpr std::array<std::string_view, 4> kTypes = {"std", "reverse_std", "left", "right"};

struct Projection {
  std::int64_t rank, interval;
  double scale;
  std::string type;

  explicit Projection(const RuleArgs& args)
      : rank(args.count("rank", 128, std::numeric_limits<std::int32_t>::max())),
        interval(args.count("update_proj_gap", 200, std::numeric_limits<std::int32_t>::max())),
        scale(args.number("scale", 0.25, 0.0, std::numeric_limits<double>::infinity())),
        type(args.choice("proj_type", kTypes[0], kTypes)) {}

  /// Whether the gradient [rows, columns] is multiplied from the right, by vectors as long as its rows.
  bool from_right(std::int64_t rows, std::int64_t columns) const {
    if (type == "left" || type == "right") return type == "right";
    return (rows >= columns) == (type == "std");
  }
};

class GaLore : public Rule {
 public:
  explicit GaLore(const Hyper& hyper) : hyper_(hyper), projection_(hyper.args), adamw_(make_adamw(hyper)) {}

  bool step(const Update& u) override { return adamw_->step(u); }

  void direct(const WholeUpdate& u) override {
    const auto t = static_cast<double>(u.step);
    const double factor = std::sqrt(1.0 - std::pow(hyper_.beta2, t)) / (1.0 - std::pow(hyper_.beta1, t)) * projection_.scale;
    const bool right = projection_.from_right(u.values.size(1), u.values.size(2));
    for (std::int64_t i = 0; i < u.values.size(0); ++i) {
      const at::Tensor vectors = u.state[0][i], m = u.state[1][i], v = u.state[2][i];
      const at::Tensor g = u.values[i].to(vectors.scalar_type());
      if ((u.step - 1) % projection_.interval == 0) {
        const auto [left_vectors, sizes, right_vectors] = at::linalg_svd(g, /*full_matrices=*/false);
        vectors.copy_(right ? right_vectors.narrow(0, 0, vectors.size(0)) : left_vectors.narrow(1, 0, vectors.size(1)));
      }
      const at::Tensor low = right ? at::mm(g, vectors.t()) : at::mm(vectors.t(), g);
      m.mul_(hyper_.beta1).add_(low, 1.0 - hyper_.beta1);
      v.mul_(hyper_.beta2).addcmul_(low, low, 1.0 - hyper_.beta2);
      const at::Tensor step = m.div(v.sqrt().add_(hyper_.eps)).mul_(factor);
      u.values[i].copy_(right ? at::mm(step, vectors) : at::mm(vectors, step));
    }
  }

 private:
  Hyper hyper_;
  Projection projection_;
  std::unique_ptr<Rule> adamw_;
};

}  // namespace

std::unique_ptr<Rule> make_galore(const Hyper& hyper) {
  return std::make_unique<GaLore>(hyper);
}

std::vector<StateSpec> galore_state(const Param& param, const Hyper& hyper, const Precision& precision) {
  constexpr std::array<std::string_view, 2> kAdamW = {"exp_avg", "exp_avg_sq"};
  if (!of_layer(param)) return elementwise(kAdamW, param, precision);
  const Projection projection(hyper.args);
  const at::ScalarType type = precision.state == at::kDouble ? at::kDouble : at::kFloat;
  const Shape stack = param.as_stack();
  const std::int64_t rank = std::min({projection.rank, stack[1], stack[2]});
  const bool right = projection.from_right(stack[1], stack[2]);
  const Shape low = right ? Shape{stack[0], stack[1], rank} : Shape{stack[0], rank, stack[2]};
  return {{"projector", type, right ? Shape{stack[0], rank, stack[2]} : Shape{stack[0], stack[1], rank}, 0},
          {"exp_avg", type, low, 0},
          {"exp_avg_sq", type, low, 0}};
}

}  // namespace qft::optim
