// Causal attention over packed sequences on the host, in fp64: what the device's attention operations compute.
#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

namespace qft::sim {

struct PackedAttention {
  at::Tensor bounds;         ///< int32 [sequences + 1]
  std::int64_t longest = 0;  ///< no sequence may be longer
  double scale = 1;
  std::int64_t window = 0;  ///< tokens that a token sees, with itself; 0: all before it
};

/// q [T, heads, d]; k, v [T, kv_heads, d]. Writes out [T, heads, d]; returns the logs of the softmax's denominators, fp64
/// [heads, T], which are NaN in rows of no sequence.
at::Tensor attend(const PackedAttention& a, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor& out);

struct AttentionGrads {
  at::Tensor q, k, v;
};
/// Writes the gradients of q, k and v. lse: fp64 [heads, T].
void attend_backward(const PackedAttention& a, const at::Tensor& gout, const at::Tensor& q, const at::Tensor& k,
                     const at::Tensor& v, const at::Tensor& out, const at::Tensor& lse, const AttentionGrads& grads);

}  // namespace qft::sim
