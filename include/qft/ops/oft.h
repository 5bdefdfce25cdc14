// OFT (Qiu et al. 2023; PEFT's OFTLayer): rotates each block of b input columns before the product, y = (x R) W^T + bias. Each
// block has its own orthogonal R, built from a skew-symmetric matrix (ops/cayley.h).
#pragma once

#include "qft/ops/linear.h"
#include "qft/ops/workspace.h"

#include <cstdint>

#include <ATen/core/Tensor.h>

namespace qft::ops {

/// rotations = R - I of each block, in fp32 (fp64 for fp64).
///   skew [blocks, b (b - 1) / 2]: the elements of Q above its diagonal, row by row; rotations [blocks, b, b] fp32, or fp64 for
///   fp64
void oft_rotations(const at::Tensor& skew, CayleyTerms terms, const at::Tensor& rotations);

/// Backpropagates grotations [blocks, b, b], the gradient of the rotations (or equally of R), into gskew (accumulated).
///   gskew [blocks, b (b - 1) / 2], any floating type
void oft_rotations_backward(const at::Tensor& grotations, const at::Tensor& skew, CayleyTerms terms, const at::Tensor& rotations,
                            const at::Tensor& gskew);

/// Maximum bytes for forward and backward in a linear with `columns` inputs: workspace plus other allocations.
std::int64_t oft_scratch_bytes(std::int64_t tokens, std::int64_t columns, std::int64_t block, at::ScalarType compute,
                               bool training);

// linear_forward and linear_backward call these if `w` has parts with OFT. Batch-invariant if the product without OFT is.
void oft_forward(const at::Tensor& x, const LinearWeights& w, const at::Tensor& y, Workspace& workspace);
void oft_backward(const LinearBackward& tensors, const LinearWeights& w, const LinearGrads& grads, Workspace& workspace);

}  // namespace qft::ops
