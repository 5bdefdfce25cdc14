// The optimizer's own kernels on a CUDA device, queued on the current stream.
#pragma once

#include "qft/optim/adamw.h"

namespace qft::optim::cuda {

/// Whether update() knows these element types, and all of it is on one CUDA device. Never in a CPU build.
bool can_update(const FlatParams& params, const Precision& precision);

/// One update of elements [segment.begin, segment.end); `copy`: the compute weights that are written too, or undefined.
struct Update {
  at::Tensor master, grads, exp_avg, exp_avg_sq, copy;  ///< whole buffers
  Segment segment;
  AdamWOptions options;
  double learning_rate, grad_scale;
  std::int64_t step;  ///< from 1
};
void update(const Update& update);

/// parts [k] fp64 on values' device, whose sum is the sum of squares; undefined where there is no kernel for `values`.
at::Tensor square_parts(const at::Tensor& values);

}  // namespace qft::optim::cuda
