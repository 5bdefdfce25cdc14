// AdamW (Loshchilov & Hutter 2019) with the update of torch.optim.AdamW: our own kernel on CUDA devices; ATen's fused kernel
// elsewhere and in fp64.
#include "device_kernels.h"
#include "rules.h"
#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/full.h>

namespace qft::optim {
namespace {

class AdamW : public Rule {
 public:
  explicit AdamW(const Hyper& hyper) : hyper_(hyper) {}

  bool step(const Update& u) override {
    if (const DeviceKernels* kernels = device_kernels(u)) {
      kernels->adamw(u, hyper_);
      return true;
    }
    // Scaled here, because the kernel's own argument is fp32 and would round fp64 gradients.
    if (u.grad_scale != 1.0) u.grads.mul_(u.grad_scale);
    const at::Tensor step =
        at::full({}, static_cast<double>(u.step), at::TensorOptions().dtype(at::kFloat).device(u.grads.device()));
    at::_fused_adamw_({u.master}, {u.grads}, {u.state[0]}, {u.state[1]}, {}, {step}, u.learning_rate, hyper_.beta1, hyper_.beta2,
                      u.weight_decay, hyper_.eps, /*amsgrad=*/false, /*maximize=*/false);
    return false;
  }

 private:
  Hyper hyper_;
};

}  // namespace

std::unique_ptr<Rule> make_adamw(const Hyper& hyper) {
  return std::make_unique<AdamW>(hyper);
}

RuleSpec adamw_rule() {
  return {.state = {kAdamWState.begin(), kAdamWState.end()}, .make = make_adamw};
}

}  // namespace qft::optim
