#include "qft/ops/norm.h"

#include "qft/core/error.h"
#include "qft/ops/generic.h"

#include "../common/device_kernels.h"
#include "../common/tensors_cpu.h"

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

}  // namespace qft::ops
