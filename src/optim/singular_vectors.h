// Singular vectors that do not depend on rounding. Private to optim.
#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

namespace qft::optim {

/// Returns the first `count` singular vectors of g [rows, columns], fp32 or fp64: right ones [count, columns], or left ones
/// [rows, count]. If g has a lower rank (an expert with few tokens, or a LoRA matrix), rounding would decide the signs of its
/// vectors, and the vectors without a singular value entirely. So the largest element of each vector is made positive, and the
/// remaining vectors are the axes orthogonalised against the others. Any layout of ranks then finds the same vectors.
at::Tensor first_singular_vectors(const at::Tensor& g, std::int64_t count, bool right);

}  // namespace qft::optim
