#include "qft/model/ops/norm.h"

#include "qft/core/error.h"
#include "qft/model/ops/generic.h"

#include "cpu/tensors.h"

namespace qft::model::ops {
namespace {

std::int64_t heads_of(const at::Tensor& x) {
  return x.dim() == 3 ? x.size(1) : 1;
}

template <class T>
void forward_cpu(const at::Tensor& x, const at::Tensor& weight, double eps, const at::Tensor& y,
                 const at::Tensor& rstd) {
  const cpu::RmsNormForward<T> args{cpu::head_rows<const T>(x),
                                    cpu::head_rows<T>(y),
                                    cpu::const_data<T>(weight),
                                    rstd.data_ptr<float>(),
                                    heads_of(x),
                                    x.size(-1),
                                    eps};
  const auto kernels = cpu::norm_kernels<T>();
  cpu::for_rows(rstd.numel(), x.size(-1),
                [&](std::int64_t begin, std::int64_t end) { kernels.forward(args, begin, end); });
}

template <class T>
void backward_cpu(const at::Tensor& gy, const at::Tensor& x, const at::Tensor& weight, const at::Tensor& rstd,
                  const at::Tensor& residual_grad, const at::Tensor& gx, const at::Tensor& gweight,
                  Workspace& workspace) {
  const std::int64_t width = x.size(-1);
  const cpu::RmsNormBackward<T> args{cpu::head_rows<const T>(gy),
                                     cpu::head_rows<const T>(x),
                                     cpu::head_rows<const T>(residual_grad),
                                     cpu::head_rows<T>(gx),
                                     cpu::const_data<T>(weight),
                                     rstd.const_data_ptr<float>(),
                                     heads_of(x),
                                     width};
  at::Tensor partial;  // a row of sums per thread, added up in the threads' order
  if (gweight.defined())
    partial = workspace.get("op.norm_gweight", {at::get_num_threads(), width}, at::kFloat).zero_();
  const auto kernels = cpu::norm_kernels<T>();
  cpu::for_rows(rstd.numel(), width, [&](std::int64_t begin, std::int64_t end) {
    float* sums = partial.defined() ? partial.data_ptr<float>() + at::get_thread_num() * width : nullptr;
    kernels.backward(args, sums, begin, end);
  });
  if (gweight.defined()) gweight.add_(partial.sum(0));
}

void check(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& rstd) {
  QFT_ASSERT((x.dim() == 2 || x.dim() == 3) && x.stride(-1) == 1 && weight.numel() == x.size(-1),
             "norm over {} features with a weight of {}", x.size(-1), weight.numel());
  QFT_ASSERT(rstd.is_contiguous() && rstd.numel() == x.numel() / x.size(-1), "rstd of {} values for {} rows",
             rstd.numel(), x.numel() / x.size(-1));
}

}  // namespace

void rms_norm_forward(const at::Tensor& x, const at::Tensor& weight, double eps, const at::Tensor& y,
                      const at::Tensor& rstd) {
  check(x, weight, rstd);
  if (!cpu::with_kernel_type(x, [&]<class T>() { forward_cpu<T>(x, weight, eps, y, rstd); }))
    generic::rms_norm_forward(x, weight, eps, y, rstd);
}

void rms_norm_backward(const at::Tensor& gy, const at::Tensor& x, const at::Tensor& weight,
                       const at::Tensor& rstd, const at::Tensor& residual_grad, const at::Tensor& gx,
                       const at::Tensor& gweight, Workspace& workspace) {
  check(x, weight, rstd);
  if (!cpu::with_kernel_type(
          x, [&]<class T>() { backward_cpu<T>(gy, x, weight, rstd, residual_grad, gx, gweight, workspace); }))
    generic::rms_norm_backward(gy, x, weight, rstd, residual_grad, gx, gweight);
}

}  // namespace qft::model::ops
