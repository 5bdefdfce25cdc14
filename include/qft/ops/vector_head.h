// Heads on whole sequences without weights of their own: the normalised hidden row (embedding models), and the difference of two
// tokens' logits (generative rerankers). Both compute in fp32 (fp64 for fp64 data).
#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

namespace qft::ops {

/// values[s] = y[s] / max(|y[s]|, 1e-12), as torch's F.normalize.
///   y       [S, D]
///   values  [S * D]; fp64 for fp64 data, else fp32
void vector_head_forward(const at::Tensor& y, const at::Tensor& values);

/// Computes gy [S, D] from the values' gradients grad_values [S * D].
void vector_head_backward(const at::Tensor& y, const at::Tensor& grad_values, const at::Tensor& gy);

/// Two rows of a table of tokens: the score is the logit of `minuend` minus the logit of `subtrahend`.
struct TokenPair {
  std::int32_t minuend = 0, subtrahend = 0;
};

/// values[s] = y[s] . (table[minuend] - table[subtrahend]).
///   table   [V, D]
///   values  [S], as above
void token_difference_forward(const at::Tensor& y, const at::Tensor& table, const TokenPair& tokens, const at::Tensor& values);

/// Computes gradients from the values' gradients.
///   gy      [S, D]: written
///   gtable  [V, D]: both rows accumulate; the data's dtype or a wider one; undefined if frozen
void token_difference_backward(const at::Tensor& y, const at::Tensor& table, const TokenPair& tokens,
                               const at::Tensor& grad_values, const at::Tensor& gy, const at::Tensor& gtable);

}  // namespace qft::ops
