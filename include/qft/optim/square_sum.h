// The squared norm of gradients.
#pragma once

#include <vector>

#include <ATen/core/Tensor.h>

namespace qft::optim {

/// Returns the sum of the squares of each tensor's elements, in fp64 and in an order that depends on its size alone. Waits once
/// for the tensors' device.
std::vector<double> square_sums(at::TensorList tensors);

}  // namespace qft::optim
