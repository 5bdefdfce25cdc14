#include "qft/ops/value_head.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/sum.h>

namespace qft::ops {
namespace {

/// Views [S * N] as [S, N].
at::Tensor by_sequence(const at::Tensor& values, const at::Tensor& weight) {
  return values.view({-1, weight.size(0)});
}

}  // namespace

void value_head_forward(const at::Tensor& y, const at::Tensor& weight, const at::Tensor& bias, const at::Tensor& values) {
  const auto type = values.scalar_type();
  const at::Tensor products = at::mm(y.to(type), weight.to(type).t());
  by_sequence(values, weight).copy_(bias.defined() ? products + bias.to(type) : products);
}

void value_head_backward(const at::Tensor& y, const at::Tensor& weight, const at::Tensor& grad_values, const at::Tensor& gy,
                         const at::Tensor& gweight, const at::Tensor& gbias) {
  const auto type = grad_values.scalar_type();
  const at::Tensor grad = by_sequence(grad_values, weight);
  if (gweight.defined()) gweight.add_(at::mm(grad.t(), y.to(type)));
  if (gbias.defined()) gbias.add_(at::sum(grad, 0));
  gy.copy_(at::mm(grad, weight.to(type)));
}

}  // namespace qft::ops
