// Lion (Chen et al. 2023, "Symbolic Discovery of Optimization Algorithms", program 1): our own kernel on CUDA devices; ATen
// elsewhere and in fp64.
#include "device_kernels.h"
#include "rules.h"
#include <ATen/TensorOperators.h>

namespace qft::optim {
namespace {

class Lion : public Rule {
 public:
  explicit Lion(const Hyper& hyper) : hyper_(hyper) {}

  bool step(const Update& u) override {
    if (const DeviceKernels* kernels = device_kernels(u)) {
      kernels->lion(u, hyper_);
      return true;
    }
    in_pieces(u, [&](const Update& piece) {
      const at::Tensor& m = piece.state[0];
      const at::Tensor g = piece.grads.mul(u.grad_scale);
      const at::Tensor direction = m.mul(hyper_.beta1).add_(g, 1.0 - hyper_.beta1).sign_();
      piece.master.mul_(1.0 - u.learning_rate * u.weight_decay).sub_(direction, u.learning_rate);
      m.mul_(hyper_.beta2).add_(g, 1.0 - hyper_.beta2);
    });
    return false;
  }

 private:
  Hyper hyper_;
};

}  // namespace

RuleSpec lion_rule() {
  return {.state = {"exp_avg"}, .make = make_rule<Lion>};
}

}  // namespace qft::optim
