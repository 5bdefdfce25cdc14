#include "dispatch.cuh"
#include "dropout.cuh"
#include "kernels.h"

namespace qft::ops::cuda {

bool dropout(const DropoutBackward& t, const DropoutKey& key, const RowIdentity& rows, double p) {
  return with_kernel_type(
      t.any(), [&]<class T>() { launch_dropout(dropout_args<T>(t, key, rows, p), t.any().size(0), device::OnStream()); });
}

}  // namespace qft::ops::cuda
