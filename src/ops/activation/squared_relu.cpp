#include "qft/ops/squared_relu.h"

#include "qft/core/error.h"

#include <ATen/ops/clamp_min.h>

namespace qft::ops {

void squared_relu_forward(const at::Tensor& x, const at::Tensor& act) {
  QFT_ASSERT(x.sizes() == act.sizes(), "x has {} values, act {}", x.numel(), act.numel());
  at::clamp_min_out(const_cast<at::Tensor&>(act), x, 0);
  act.square_();
}

void squared_relu_backward(const at::Tensor& x, const at::Tensor& gact, const at::Tensor& gx) {
  QFT_ASSERT(x.sizes() == gact.sizes() && x.sizes() == gx.sizes(), "x has {} values, gact {}, gx {}", x.numel(), gact.numel(),
             gx.numel());
  at::clamp_min_out(const_cast<at::Tensor&>(gx), x, 0);
  gx.mul_(2).mul_(gact);  // a factor of 2 is exact
}

}  // namespace qft::ops
