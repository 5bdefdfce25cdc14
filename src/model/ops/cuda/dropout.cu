#include "dropout.cuh"

#include "dispatch.cuh"
#include "kernels.h"

namespace qft::model::ops::cuda {

bool dropout(const at::Tensor& x, const DropoutKey& key, const RowIdentity& rows, double p, const at::Tensor& out, bool add) {
  return with_kernel_type(x, [&]<class T>() {
    launch_dropout(dropout_args<T>(x, key, rows, p, out, add), x.size(0), device::OnStream());
  });
}

}  // namespace qft::model::ops::cuda
