// Singular vectors that do not depend on rounding. Private to optim.
#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

namespace qft::optim {

/// The first `count` singular vectors of g [rows, columns], fp32 or fp64: right ones [count, columns], or left ones [rows,
/// count]. Where g has a lower rank (of an expert with few tokens, or of a matrix of LoRA), rounding would choose the signs of
/// its vectors, and all of those of no singular value: the largest element of each is above 0, and the latter are what the former
/// leave of the axes, so that any layout of ranks finds the same.
at::Tensor first_singular_vectors(const at::Tensor& g, std::int64_t count, bool right);

}  // namespace qft::optim
