// GaLore (Zhao et al. 2024, "Memory-Efficient LLM Training by Gradient Low-Rank Projection") over AdamW, as in galore_torch:
// keeps the moments of a matrix's gradient in the space of its first singular vectors, which are recomputed every few steps.
#include "low_rank.h"
#include "rules.h"
#include <ATen/TensorOperators.h>
#include <ATen/ops/mm.h>

namespace qft::optim {
namespace {

constexpr double kGaLoreScale = 0.25;

class GaLore : public Rule {
 public:
  explicit GaLore(const Hyper& hyper) : hyper_(hyper), space_(hyper.args, kGaLoreScale), adamw_(make_adamw(hyper)) {}

  bool step(const Update& u) override { return adamw_->step(u); }

  void compute_update(const WholeUpdate& u) override {
    const double factor = bias_correction(hyper_, u.step) * space_.scale();
    const bool right = space_.from_right(u.values.size(1), u.values.size(2));
    for (std::int64_t i = 0; i < u.values.size(0); ++i) {
      const at::Tensor vectors = u.state[0][i], g = u.values[i].to(vectors.scalar_type());
      if (space_.is_due(u.step)) find_singular_vectors(g, right, vectors);
      const at::Tensor step = moments_step(hyper_, to_low_rank(g, vectors, right), u.state[1][i], u.state[2][i]).mul_(factor);
      u.values[i].copy_(right ? at::mm(step, vectors) : at::mm(vectors, step));
    }
  }

 private:
  Hyper hyper_;
  LowRank space_;
  std::unique_ptr<Rule> adamw_;
};

std::vector<StateSpec> galore_state(const Param& param, const Hyper& hyper, const Precision& precision) {
  return of_layer(param) ? LowRank(hyper.args, kGaLoreScale).states(param.as_stack(), precision)
                         : elementwise(kAdamWState, param, precision);
}

}  // namespace

RuleSpec galore_rule() {
  return {.make = make_rule<GaLore>,
          .args = {"rank", "update_proj_gap", "scale", "proj_type"},
          .state_of = galore_state,
          .whole = of_layer};
}

}  // namespace qft::optim
