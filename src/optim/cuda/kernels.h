// The optimizer's own kernels on a CUDA device, queued on the current stream.
#pragma once

#include "qft/optim/rule.h"

namespace qft::optim::cuda {

/// Whether the rules' kernels know these element types, and all of it is on one CUDA device. Never in a CPU build.
bool can_update(const Update& update);

/// One update, where can_update(); writes the copy too.
void adamw(const Update& update, const Hyper& hyper);
void lion(const Update& update, const Hyper& hyper);

/// parts [k] fp64 on values' device, whose sum is the sum of squares; undefined where there is no kernel for `values`.
at::Tensor square_parts(const at::Tensor& values);

}  // namespace qft::optim::cuda
