// SGD with the update of torch.optim.SGD: weight decay is part of the gradient.
#include "qft/core/error.h"

#include <array>
#include <limits>

#include "rules.h"
#include <ATen/TensorOperators.h>

namespace qft::optim {
namespace {

struct Options {
  double momentum, dampening;
  bool nesterov;

  explicit Options(const RuleArgs& args)
      : momentum(args.number("momentum", 0.0, 0.0, std::numeric_limits<double>::infinity())),
        dampening(args.number("dampening", 0.0, 0.0, std::numeric_limits<double>::infinity())),
        nesterov(args.flag("nesterov", false)) {
    if (nesterov && (momentum == 0.0 || dampening != 0.0))
      fail_config("optim_args: nesterov of SGD needs a momentum above 0 and no dampening, got momentum {} and dampening {}",
                  momentum, dampening);
  }
};

class Sgd : public Rule {
 public:
  explicit Sgd(const Hyper& hyper) : options_(hyper.args) {}

  bool step(const Update& u) override {
    in_pieces(u, [&](const Update& piece) {
      const at::Tensor g = piece.grads.mul(u.grad_scale);
      if (u.weight_decay != 0.0) g.add_(piece.master, u.weight_decay);
      if (options_.momentum == 0.0) {
        piece.master.sub_(g, u.learning_rate);
        return;
      }
      const at::Tensor& m = piece.state[0];
      m.mul_(options_.momentum).add_(g, u.step == 1 ? 1.0 : 1.0 - options_.dampening);
      piece.master.sub_(options_.nesterov ? g.add_(m, options_.momentum) : m, u.learning_rate);
    });
    return false;
  }

 private:
  Options options_;
};

std::vector<StateSpec> sgd_state(const Param& param, const Hyper& hyper, const Precision& precision) {
  constexpr std::array<std::string_view, 1> kNames = {"momentum_buffer"};
  return Options(hyper.args).momentum == 0.0 ? std::vector<StateSpec>{} : elementwise(kNames, param, precision);
}

}  // namespace

RuleSpec sgd_rule() {
  return {.make = make_rule<Sgd>, .args = {"momentum", "dampening", "nesterov"}, .state_of = sgd_state};
}

}  // namespace qft::optim
