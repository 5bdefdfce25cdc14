// AdamW in one pass over a buffer: masters, moments and the copy that computes.
#pragma once

#include "qft/device/rows.cuh"

namespace qft::optim::cuda {

/// P: the type of masters, gradients and moments; W: of the compute copy.
template <class P, class W>
struct AdamWBuffers {
  P* master;
  const P* grads;
  P *exp_avg, *exp_avg_sq;
  W* copy;  ///< or null
  std::int64_t count;
};

/// Of one update, in torch.optim.AdamW's names.
struct AdamWNumbers {
  float beta1, beta2, eps;
  float step_size;              ///< learning rate / (1 - beta1^t)
  float bias_correction2_sqrt;  ///< sqrt(1 - beta2^t)
  float decay;                  ///< learning rate * weight_decay
  float grad_scale;
};

template <int N, class P, class W>
__device__ void adamw_piece(const AdamWBuffers<P, W>& a, const AdamWNumbers& n, std::int64_t i) {
  auto p = device::load<N>(a.master + i), m = device::load<N>(a.exp_avg + i), v = device::load<N>(a.exp_avg_sq + i);
  const auto grad = device::load<N>(a.grads + i);
  for (int k = 0; k < N; ++k) {
    const float g = grad[k] * n.grad_scale;
    p[k] -= n.decay * p[k];
    m[k] += (1.0F - n.beta1) * (g - m[k]);
    v[k] += (1.0F - n.beta2) * (g * g - v[k]);
    p[k] -= n.step_size * m[k] / (sqrtf(v[k]) / n.bias_correction2_sqrt + n.eps);
  }
  device::store(a.master + i, p);
  device::store(a.exp_avg + i, m);
  device::store(a.exp_avg_sq + i, v);
  if (a.copy != nullptr) device::store(a.copy + i, p);
}

template <int N, class P, class W>
__global__ void adamw_kernel(AdamWBuffers<P, W> a, AdamWNumbers n) {
  std::int64_t i = (static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) * N;
  if (i + N <= a.count) return adamw_piece<N>(a, n, i);
  for (; i < a.count; ++i) adamw_piece<1>(a, n, i);
}

template <class P, class W, class Launch>
void launch_adamw(const AdamWBuffers<P, W>& a, const AdamWNumbers& numbers, const Launch& launch) {
  constexpr int kPiece = device::kPiece<P>;
  const bool whole = device::in_pieces<kPiece>(a.master, {}) && device::in_pieces<kPiece>(a.grads, {}) &&
                     device::in_pieces<kPiece>(a.exp_avg, {}) && device::in_pieces<kPiece>(a.exp_avg_sq, {}) &&
                     device::in_pieces<kPiece>(a.copy, {});
  device::with_piece<kPiece>(whole, [&](auto n) {
    launch(device::flat_shape((a.count + n - 1) / n), &adamw_kernel<n(), P, W>, a, numbers);
  });
}

}  // namespace qft::optim::cuda
