#include "qft/ops/head_gate.h"

#include "qft/core/error.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/sigmoid.h>

namespace qft::ops {
namespace {

at::Tensor by_heads(const at::Tensor& rows, const at::Tensor& gate) {
  QFT_ASSERT(gate.dim() == 3 && rows.size(1) == gate.size(1) * gate.size(2), "{} columns, but gates for {} heads of size {}",
             rows.size(1), gate.size(1), gate.size(2));
  return rows.unflatten(1, {gate.size(1), gate.size(2)});
}

}  // namespace

void head_gate_forward(const at::Tensor& x, const at::Tensor& gate, const at::Tensor& y) {
  at::Tensor out = by_heads(y, gate);
  at::mul_out(out, by_heads(x, gate), at::sigmoid(gate));
}

void head_gate_backward(const at::Tensor& gy, const at::Tensor& x, const at::Tensor& gate, const at::Tensor& ggate) {
  const at::Tensor s = at::sigmoid(gate), g = by_heads(gy, gate);
  ggate.copy_(g * by_heads(x, gate) * (s * (1 - s)));
  g.mul_(s);
}

std::int64_t head_gate_scratch_bytes(std::int64_t tokens, std::int64_t columns, at::ScalarType dtype, bool backward) {
  const std::int64_t tensors = backward ? 5 : 1;
  return tensors * tokens * columns * static_cast<std::int64_t>(c10::elementSize(dtype));
}

}  // namespace qft::ops
