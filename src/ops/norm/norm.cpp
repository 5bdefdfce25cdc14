#include "qft/ops/norm.h"

#include "qft/core/error.h"
#include "qft/ops/cpu/delta_net_kernels.h"
#include "qft/ops/generic.h"

#include <algorithm>

#include "../common/device_kernels.h"
#include "../common/tensors_cpu.h"
#include <ATen/TensorOperators.h>
#include <ATen/ops/rsqrt.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/zeros.h>

namespace qft::ops {
namespace {

template <class T>
void forward_cpu(const RmsNormForward<T>& args, std::int64_t rows) {
  const auto kernels = cpu::norm_kernels<T>();
  cpu::for_rows(rows, args.width, [&](std::int64_t begin, std::int64_t end) { kernels.forward(args, begin, end); });
}

template <class T>
void backward_cpu(const RmsNormBackward<T>& args, std::int64_t rows, const at::Tensor& gweight, Workspace& workspace) {
  at::Tensor partial;  // one row of sums per thread, added in thread order
  if (gweight.defined()) partial = workspace.get("op.norm_gweight", {at::get_num_threads(), args.width}, at::kFloat).zero_();
  const auto kernels = cpu::norm_kernels<T>();
  cpu::for_rows(rows, args.width, [&](std::int64_t begin, std::int64_t end) {
    float* sums = partial.defined() ? partial.data_ptr<float>() + at::get_thread_num() * args.width : nullptr;
    kernels.backward(args, sums, begin, end);
  });
  if (gweight.defined()) gweight.add_(partial.sum(0));
}

void check(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& rstd) {
  QFT_ASSERT((x.dim() == 2 || x.dim() == 3) && x.stride(-1) == 1 && weight.numel() == x.size(-1),
             "norm over {} features, but the weight has {}", x.size(-1), weight.numel());
  QFT_ASSERT(rstd.is_contiguous() && rstd.numel() == x.numel() / x.size(-1), "rstd has {} values for {} rows", rstd.numel(),
             x.numel() / x.size(-1));
}

/// Elements of a tensor [rows, heads, D] in the plain ATen path.
constexpr std::int64_t kElements = std::int64_t{1} << 22;

std::int64_t rows_at_once(std::int64_t rows, std::int64_t columns) {
  return std::clamp<std::int64_t>(kElements / std::max<std::int64_t>(columns, 1), 1, std::max<std::int64_t>(rows, 1));
}

at::Tensor accumulated(const at::Tensor& x) {
  return x.to(generic::accumulate_dtype(x.scalar_type()));
}

template <class T>
cpu::GatedNorm<T> arguments(const at::Tensor& x, const at::Tensor& z, const at::Tensor& weight, const at::Tensor& rstd) {
  cpu::GatedNorm<T> args{};
  args.x = head_rows<const T>(x), args.z = head_rows<const T>(z);
  args.weight = const_data<T>(weight), args.rstd = rstd.data_ptr<float>();
  args.heads = x.size(1), args.width = x.size(2);
  return args;
}

template <class T>
void backward_cpu(const cpu::GatedNorm<T>& args, std::int64_t rows, const at::Tensor& gweight, Workspace& workspace) {
  at::Tensor partial;  // one row of sums per thread, added in thread order
  if (gweight.defined()) partial = workspace.get("op.norm_gweight", {at::get_num_threads(), args.width}, at::kFloat).zero_();
  const auto kernels = cpu::gated_norm_kernels<T>();
  cpu::for_rows(rows, args.width, [&](std::int64_t begin, std::int64_t end) {
    float* sums = partial.defined() ? partial.data_ptr<float>() + at::get_thread_num() * args.width : nullptr;
    kernels.backward(args, sums, begin, end);
  });
  if (gweight.defined()) gweight.add_(partial.sum(0));
}

void forward_generic(const at::Tensor& x, const at::Tensor& z, const at::Tensor& weight, double eps, const at::Tensor& y,
                     const at::Tensor& rstd) {
  const at::Tensor xf = accumulated(x), gate = accumulated(z), r = at::rsqrt(xf.square().mean(-1, true) + eps);
  rstd.copy_(r.squeeze(-1));
  y.copy_(weight * (xf * r).to(x.scalar_type()) * (gate * at::sigmoid(gate)));
}

/// `gweight`: in the accumulation dtype.
void backward_generic(const at::Tensor& gy, const at::Tensor& x, const at::Tensor& z, const at::Tensor& weight,
                      const at::Tensor& rstd, const at::Tensor& gx, const at::Tensor& gz, const at::Tensor& gweight) {
  const at::Tensor gate = accumulated(z), open = at::sigmoid(gate), silu = gate * open, r = rstd.unsqueeze(-1);
  const at::Tensor xhat = accumulated(x) * r, rounded = accumulated(xhat.to(x.scalar_type())), gf = accumulated(gy);
  const at::Tensor normed_grad = gf * silu;
  if (gweight.defined()) gweight.add_((normed_grad * rounded).reshape({-1, x.size(-1)}).sum(0));
  const at::Tensor ggate = gf * accumulated(weight) * rounded * (open + silu * (1 - open));
  const at::Tensor g = normed_grad * accumulated(weight);
  gz.copy_(ggate);
  gx.copy_((g - xhat * (g * xhat).mean(-1, true)) * r);
}

/// Calls f(part) for chunks of rows in the plain ATen path; part(t) returns these rows of t.
template <class F>
void for_rows(const at::Tensor& x, const F& f) {
  const std::int64_t rows = x.size(0), step = rows_at_once(rows, x.size(1) * x.size(2));
  for (std::int64_t first = 0; first < rows; first += step)
    f([&](const at::Tensor& t) { return t.narrow(0, first, std::min(step, rows - first)); });
}

void check(const at::Tensor& x, const at::Tensor& z, const at::Tensor& weight, const at::Tensor& rstd) {
  QFT_ASSERT(x.dim() == 3 && x.stride(-1) == 1 && z.stride(-1) == 1 && z.sizes() == x.sizes(),
             "gated norm: x has {} values, the gate {}", x.numel(), z.numel());
  QFT_ASSERT(weight.numel() == x.size(-1), "norm over {} features, but the weight has {}", x.size(-1), weight.numel());
  QFT_ASSERT(rstd.is_contiguous() && rstd.numel() == x.size(0) * x.size(1), "rstd has {} values for {} rows", rstd.numel(),
             x.size(0) * x.size(1));
}

}  // namespace

void rms_norm_forward(const at::Tensor& x, const at::Tensor& weight, double eps, const at::Tensor& y, const at::Tensor& rstd,
                      NormWeight form) {
  check(x, weight, rstd);
  const bool done = cpu::with_kernel_type(
      x, [&]<class T>() { forward_cpu(norm_forward_args<T>(x, weight, eps, y, rstd, form), rstd.numel()); });
  if (done) return;
  const DeviceKernels* kernels = device_kernels(x);
  if (kernels == nullptr || !kernels->rms_norm_forward(x, weight, eps, y, rstd, form))
    generic::rms_norm_forward(x, weight, eps, y, rstd, form);
}

void rms_norm_backward(const NormBackward& t, Workspace& workspace) {
  check(t.x, t.weight, t.rstd);
  const bool done = cpu::with_kernel_type(t.x, [&]<class T>() {
    backward_cpu(norm_backward_args<T>(t.gy, t.x, t.weight, t.rstd, t.residual_grad, t.gx, t.form), t.rstd.numel(), t.gweight,
                 workspace);
  });
  if (done) return;
  const DeviceKernels* kernels = device_kernels(t.x);
  at::Tensor partial;
  if (kernels != nullptr && t.gweight.defined())
    partial = workspace.get("op.norm_gweight", {norm_weight_grad_parts(t.rstd.numel()), t.x.size(-1)}, at::kFloat);
  if (kernels == nullptr ||
      !kernels->rms_norm_backward(t.gy, t.x, t.weight, t.rstd, t.residual_grad, t.gx, t.gweight, partial, t.form))
    generic::rms_norm_backward(t);
}

void gated_norm_forward(const at::Tensor& x, const at::Tensor& z, const at::Tensor& weight, double eps, const at::Tensor& y,
                        const at::Tensor& rstd) {
  check(x, z, weight, rstd);
  const bool done = cpu::with_kernel_type(x, [&]<class T>() {
    cpu::GatedNorm<T> args = arguments<T>(x, z, weight, rstd);
    args.y = head_rows<T>(y), args.eps = static_cast<float>(eps);
    const auto kernels = cpu::gated_norm_kernels<T>();
    cpu::for_rows(rstd.numel(), args.width, [&](std::int64_t begin, std::int64_t end) { kernels.forward(args, begin, end); });
  });
  if (done) return;
  for_rows(x, [&](const auto& part) { forward_generic(part(x), part(z), weight, eps, part(y), part(rstd)); });
}

void gated_norm_backward(const GatedNormBackward& t, Workspace& workspace) {
  check(t.x, t.z, t.weight, t.rstd);
  const bool done = cpu::with_kernel_type(t.x, [&]<class T>() {
    cpu::GatedNorm<T> args = arguments<T>(t.x, t.z, t.weight, t.rstd);
    args.gy = head_rows<const T>(t.gy), args.gx = head_rows<T>(t.gx), args.gz = head_rows<T>(t.gz);
    backward_cpu(args, t.rstd.numel(), t.gweight, workspace);
  });
  if (done) return;
  at::Tensor sums;
  if (t.gweight.defined()) sums = at::zeros(t.gweight.sizes(), t.rstd.options());
  for_rows(t.x, [&](const auto& part) {
    backward_generic(part(t.gy), part(t.x), part(t.z), t.weight, part(t.rstd), part(t.gx), part(t.gz), sums);
  });
  if (t.gweight.defined()) t.gweight.add_(sums);
}

std::int64_t gated_norm_scratch_bytes(std::int64_t tokens, std::int64_t columns, at::ScalarType dtype, bool on_cpu,
                                      bool backward) {
  const at::ScalarType sums = generic::accumulate_dtype(dtype);
  if (on_cpu && (dtype == at::kFloat || dtype == at::kBFloat16)) return 0;
  // Number of simultaneous tensors, doubled: narrower data is first copied to the accumulation dtype.
  const std::int64_t halves = sums != dtype ? (backward ? 26 : 14) : (backward ? 20 : 10);
  const auto item = static_cast<std::int64_t>(c10::elementSize(sums));
  return halves * rows_at_once(tokens, columns) * columns * item / 2;
}

}  // namespace qft::ops
