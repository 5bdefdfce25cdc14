#include "qft/ops/generic.h"

#include "qft/device/backends.h"

#include <algorithm>

#include "device_kernels.h"
#include <ATen/TensorOperators.h>
#include <ATen/ops/amax.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/rsqrt.h>
#include <ATen/ops/sigmoid.h>

namespace qft::ops::generic {
namespace {

at::Tensor accumulated(const at::Tensor& x) {
  return x.to(accumulate_dtype(x.scalar_type()));
}

/// Returns the multiplier of a norm.
at::Tensor factor(const at::Tensor& weight, NormWeight form) {
  return form == NormWeight::zero_centred ? accumulated(weight) + 1 : accumulated(weight);
}

}  // namespace

void rms_norm_forward(const at::Tensor& x, const at::Tensor& weight, double eps, const at::Tensor& y, const at::Tensor& rstd,
                      NormWeight form) {
  const at::Tensor xf = accumulated(x);
  const at::Tensor r = at::rsqrt(xf.square().mean(-1, true) + eps);
  rstd.copy_(r.squeeze(-1));
  if (form == NormWeight::plain)
    y.copy_(weight * (xf * r).to(x.scalar_type()));
  else
    y.copy_((xf * r) * factor(weight, form));
}

void rms_norm_backward(const NormBackward& t) {
  const at::Tensor xf = accumulated(t.x), gf = accumulated(t.gy), r = t.rstd.unsqueeze(-1);
  const at::Tensor xhat = xf * r;
  if (t.gweight.defined()) {
    // A plain weight multiplies the rounded value.
    const at::Tensor rounded = t.form == NormWeight::plain ? accumulated(xhat.to(t.x.scalar_type())) : xhat;
    t.gweight.add_((gf * rounded).reshape({-1, t.x.size(-1)}).sum(0));
  }
  at::Tensor g = gf * factor(t.weight, t.form);
  g.sub_(xhat * (g * xhat).mean(-1, true)).mul_(r);
  if (t.residual_grad.defined()) g.add_(t.residual_grad);
  t.gx.copy_(g);
}

void rope(const at::Tensor& x, const at::Tensor& positions, const RopeTable& table, RopeDirection direction) {
  const std::int64_t half = x.size(-1) / 2;
  const at::Tensor cos = table.cos.index_select(0, positions).unsqueeze(1);
  at::Tensor sin = table.sin.index_select(0, positions).unsqueeze(1);
  if (direction == RopeDirection::backward) sin = -sin;
  const at::Tensor first = accumulated(x.narrow(-1, 0, half)), second = accumulated(x.narrow(-1, half, half));
  const at::Tensor rotated = first * cos - second * sin;
  x.narrow(-1, half, half).copy_(second * cos + first * sin);
  x.narrow(-1, 0, half).copy_(rotated);
}

void swiglu_forward(const at::Tensor& gate_up, const at::Tensor& act) {
  const std::int64_t width = act.size(1);
  const at::Tensor gate = accumulated(gate_up.narrow(1, 0, width)), up = gate_up.narrow(1, width, width);
  act.copy_(gate * at::sigmoid(gate) * up);
}

void swiglu_backward(const at::Tensor& gate_up, const at::Tensor& gact, const at::Tensor& ggate_up, const at::Tensor& act) {
  const std::int64_t width = gact.size(1);
  const at::Tensor gate = accumulated(gate_up.narrow(1, 0, width)), up = accumulated(gate_up.narrow(1, width, width));
  const at::Tensor s = at::sigmoid(gate), silu = gate * s;
  // d silu / d gate = s (1 + gate (1 - s))
  const at::Tensor ggate = (silu * s).neg_().add_(s).add_(silu).mul_(up).mul_(gact);
  const at::Tensor product = act.defined() ? silu * up : at::Tensor();
  const at::Tensor gup = silu.mul_(gact);
  if (act.defined()) act.copy_(product);  // may alias gact
  ggate_up.narrow(1, 0, width).copy_(ggate);
  ggate_up.narrow(1, width, width).copy_(gup);
}

void cross_entropy_rows(const at::Tensor& logits, const at::Tensor& targets, const at::Tensor& grad_logprobs,
                        const at::Tensor& logprobs) {
  const at::Tensor index = targets.to(at::kLong).unsqueeze(1);
  at::Tensor logp = at::log_softmax(logits, -1, accumulate_dtype(logits.scalar_type()));
  if (logprobs.defined()) logprobs.copy_(logp.gather(1, index).squeeze(1));
  if (!grad_logprobs.defined()) return;
  const at::Tensor g = grad_logprobs.unsqueeze(1);
  logp.exp_().mul_(-g).scatter_add_(1, index, g.to(logp.scalar_type()));
  logits.copy_(logp);
}

namespace {

/// Columns of the targets in a part's logits: int64 [C, 1]; 0 for targets in other parts, of which `elsewhere` [C] is true.
at::Tensor target_columns(const at::Tensor& targets, const at::Tensor& logits, const VocabularyPart& vocabulary,
                          at::Tensor& elsewhere) {
  const at::Tensor columns = targets.to(at::kLong) - vocabulary.first;
  elsewhere = columns.lt(0).logical_or_(columns.ge(logits.size(1)));
  return columns.masked_fill_(elsewhere, 0).unsqueeze(1);
}

}  // namespace

void softmax_statistics(const at::Tensor& logits, const at::Tensor& targets, const VocabularyPart& vocabulary,
                        const at::Tensor& statistics) {
  at::Tensor elsewhere;
  const at::Tensor columns = target_columns(targets, logits, vocabulary, elsewhere);
  statistics[0].copy_(at::amax(logits, 1));
  statistics[1].copy_((accumulated(logits) - statistics[0].unsqueeze(1)).exp_().sum(1));
  statistics[2].copy_(logits.gather(1, columns).squeeze(1)).masked_fill_(elsewhere, 0.0);
}

void softmax_gradient(const at::Tensor& logits, const at::Tensor& targets, const VocabularyPart& vocabulary,
                      const at::Tensor& grad_logprobs, const at::Tensor& lse) {
  at::Tensor elsewhere;
  const at::Tensor columns = target_columns(targets, logits, vocabulary, elsewhere), g = grad_logprobs.to(lse.scalar_type());
  at::Tensor p = (accumulated(logits) - lse.unsqueeze(1)).exp_();
  p.mul_(-g.unsqueeze(1)).scatter_add_(1, columns, g.masked_fill(elsewhere, 0.0).unsqueeze(1));
  logits.copy_(p);
}

std::int64_t scratch_bytes(const Sizes& sizes, at::ScalarType dtype) {
  const auto item = static_cast<std::int64_t>(c10::elementSize(accumulate_dtype(dtype)));
  // Narrower data is first copied to the accumulation dtype.
  const bool copied = accumulate_dtype(dtype) != dtype;
  const std::int64_t norm = (copied ? 6 : 4) * sizes.tokens * sizes.hidden;
  const std::int64_t swiglu = (copied ? 6 : 4) * sizes.tokens * sizes.intermediate;
  const std::int64_t cross_entropy = (copied ? 2 : 1) * sizes.logit_rows * sizes.vocabulary;
  return std::max({norm, swiglu, cross_entropy}) * item;
}

bool runs_generic(c10::Device device, at::ScalarType dtype) {
  if (dtype == at::kDouble) return true;
  return !device.is_cpu() && device::part_of<DeviceKernels>(device, "ops") == nullptr;
}

}  // namespace qft::ops::generic
