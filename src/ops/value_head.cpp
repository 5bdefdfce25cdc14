#include "qft/ops/value_head.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/mv.h>
#include <ATen/ops/outer.h>
#include <ATen/ops/sum.h>

namespace qft::ops {

void value_head_forward(const at::Tensor& y, const at::Tensor& weight, const at::Tensor& bias, const at::Tensor& values) {
  const auto type = values.scalar_type();
  values.copy_(at::mv(y.to(type), weight.to(type).view(-1)) + bias.to(type));
}

void value_head_backward(const at::Tensor& y, const at::Tensor& weight, const at::Tensor& grad_values, const at::Tensor& gy,
                         const at::Tensor& gweight, const at::Tensor& gbias) {
  const auto type = grad_values.scalar_type();
  if (gweight.defined()) gweight.add_(at::mv(y.to(type).t(), grad_values).view(gweight.sizes()));
  if (gbias.defined()) gbias.add_(at::sum(grad_values));
  gy.copy_(at::outer(grad_values, weight.to(type).view(-1)));
}

}  // namespace qft::ops
