// Lion (Chen et al. 2023, "Symbolic Discovery of Optimization Algorithms", program 1): on a CUDA device by a kernel of our own,
// elsewhere and in fp64 by ATen.
#include <algorithm>

#include "device_kernels.h"
#include "rules.h"
#include <ATen/OpMathType.h>
#include <ATen/TensorOperators.h>

namespace qft::optim {
namespace {

/// Elements at a time: what is computed on the way stays in the cache, and is no second gradient buffer.
constexpr std::int64_t kPiece = std::int64_t{1} << 17;

class Lion : public Rule {
 public:
  explicit Lion(const Hyper& hyper) : hyper_(hyper) {}

  bool step(const Update& u) override {
    if (const DeviceKernels* kernels = device_kernels(u)) {
      kernels->lion(u, hyper_);
      return true;
    }
    for (std::int64_t begin = 0; begin < u.master.numel(); begin += kPiece)
      step(u, begin, std::min(kPiece, u.master.numel() - begin));
    return false;
  }

 private:
  void step(const Update& u, std::int64_t begin, std::int64_t count) const {
    const at::Tensor master = u.master.narrow(0, begin, count), momentum = u.state[0].narrow(0, begin, count);
    const at::ScalarType wide = at::toOpMathType(master.scalar_type());  // half types are computed in fp32 and rounded once
    const at::Tensor p = master.to(wide), m = momentum.to(wide);
    const at::Tensor g = u.grads.narrow(0, begin, count).to(wide).mul(u.grad_scale);
    const at::Tensor direction = m.mul(hyper_.beta1).add_(g, 1.0 - hyper_.beta1).sign_();
    p.mul_(1.0 - u.learning_rate * u.weight_decay).sub_(direction, u.learning_rate);
    m.mul_(hyper_.beta2).add_(g, 1.0 - hyper_.beta2);
    if (!p.is_same(master)) master.copy_(p);
    if (!m.is_same(momentum)) momentum.copy_(m);
  }

  Hyper hyper_;
};

}  // namespace

std::unique_ptr<Rule> make_lion(const Hyper& hyper) {
  return std::make_unique<Lion>(hyper);
}

}  // namespace qft::optim
