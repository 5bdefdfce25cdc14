// OFT (Qiu et al. 2023; PEFT's OFTLayer): of a linear's inputs x each block of b columns is turned before the product,
// y = (x R) W^T + bias, with R orthogonal, of a skew-symmetric matrix of its own for each block (ops/cayley.h).
#pragma once

#include "qft/ops/linear.h"
#include "qft/ops/workspace.h"

#include <cstdint>

#include <ATen/core/Tensor.h>

namespace qft::ops {

/// turns = R - I of each block, in fp32 (fp64 for fp64).
///   skew [blocks, b (b - 1) / 2], the elements of Q above its diagonal, by rows; turns [blocks, b, b] fp32, or fp64 for fp64
void oft_turns(const at::Tensor& skew, CayleyTerms terms, const at::Tensor& turns);

/// gskew += what the gradient gturns [blocks, b, b] of the turns (or of R) makes of it.
///   gskew [blocks, b (b - 1) / 2], any floating type
void oft_turns_backward(const at::Tensor& gturns, const at::Tensor& skew, CayleyTerms terms, const at::Tensor& turns,
                        const at::Tensor& gskew);

/// Bytes that forward and backward of a linear of `columns` inputs take, at most: of the workspace, and what is allocated
/// besides.
std::int64_t oft_scratch_bytes(std::int64_t tokens, std::int64_t columns, std::int64_t block, at::ScalarType compute,
                               bool training);

// What linear_forward and linear_backward do where `w` has parts with OFT. Rows of y keep their bits in any company where those
// of the product without OFT do.
void oft_forward(const at::Tensor& x, const LinearWeights& w, const at::Tensor& y, Workspace& workspace);
void oft_backward(const at::Tensor& gy, const at::Tensor& x, const LinearWeights& w, const at::Tensor& gx, GradMode mode,
                  const LinearGrads& grads, Workspace& workspace);

}  // namespace qft::ops
