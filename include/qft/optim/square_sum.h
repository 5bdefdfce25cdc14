// The squared norm of gradients.
#pragma once

#include <ATen/core/Tensor.h>

namespace qft::optim {

/// Returns the sum of the squares of all elements, in fp64 and in an order that depends on the sizes alone. Waits once for the
/// tensors' device.
double square_sum(at::TensorList tensors);

}  // namespace qft::optim
