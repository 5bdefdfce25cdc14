#include "dispatch.cuh"
#include "kernels.h"
#include "norm.cuh"

namespace qft::ops::cuda {

bool rms_norm_forward(const at::Tensor& x, const at::Tensor& weight, double eps, const at::Tensor& y, const at::Tensor& rstd) {
  return with_kernel_type(x, [&]<class T>() {
    launch_rms_norm_forward(norm_forward_args<T>(x, weight, eps, y, rstd), rstd.numel(), device::OnStream());
  });
}

bool rms_norm_backward(const at::Tensor& gy, const at::Tensor& x, const at::Tensor& weight, const at::Tensor& rstd,
                       const at::Tensor& residual_grad, const at::Tensor& gx, const at::Tensor& gweight, Workspace& workspace) {
  return with_kernel_type(x, [&]<class T>() {
    const RmsNormBackward<T> args = norm_backward_args<T>(gy, x, weight, rstd, residual_grad, gx);
    const std::int64_t rows = rstd.numel();
    if (gweight.defined()) {
      const at::Tensor partial = workspace.get("op.norm_gweight", {norm_weight_grad_parts(rows), args.width}, at::kFloat);
      const bool known = with_grad_type<T>(gweight, [&]<class G>() {
        launch_norm_weight_grad(args, rows, partial.data_ptr<float>(), data<G>(gweight), device::OnStream());
      });
      TORCH_CHECK(known, "a norm's weight gradient of type ", gweight.scalar_type(), " for data of type ", x.scalar_type());
    }
    launch_rms_norm_backward(args, rows, device::OnStream());
  });
}

}  // namespace qft::ops::cuda
