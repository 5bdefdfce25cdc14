// Causal attention over packed sequences on the host, in fp64: the reference for the device's attention operations.
#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

namespace qft::sim {

struct PackedAttention {
  at::Tensor bounds;         ///< int32 [sequences + 1]
  std::int64_t longest = 0;  ///< upper bound of the sequence lengths
  double scale = 1;
  std::int64_t window = 0;  ///< tokens that a token attends to, including itself; 0: itself and all earlier tokens
};

/// Computes attention for q [T, heads, d] and k, v [T, kv_heads, d]. Writes out [T, heads, d]; returns the logarithms of the
/// softmax denominators, fp64 [heads, T], which are NaN in rows outside all sequences.
at::Tensor attend(const PackedAttention& a, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor& out);

struct AttentionGrads {
  at::Tensor q, k, v;
};
/// Writes the gradients of q, k and v. lse: fp64 [heads, T].
void attend_backward(const PackedAttention& a, const at::Tensor& gout, const at::Tensor& q, const at::Tensor& k,
                     const at::Tensor& v, const at::Tensor& out, const at::Tensor& lse, const AttentionGrads& grads);

}  // namespace qft::sim
