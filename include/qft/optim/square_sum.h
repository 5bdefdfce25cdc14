// The squared norm of gradients.
#pragma once

#include <ATen/core/Tensor.h>

namespace qft::optim {

/// Sum of the squares of all elements, in fp64 and in an order that depends on the sizes alone. Waits for the tensors'
/// device, once.
double square_sum(at::TensorList tensors);

}  // namespace qft::optim
