// One pass over a buffer that updates each of its elements: masters, a rule's state and the copy that computes.
#pragma once

#include "qft/device/rows.cuh"

#include "launches.h"

namespace qft::optim::cuda {

/// element(p, g, s) updates master p and state s[S] by the gradient g.
template <int N, class P, class W, int S, class Element>
__device__ void update_piece(const UpdateBuffers<P, W, S>& b, const Element& element, std::int64_t i) {
  auto master = device::load<N>(b.master + i);
  const auto grads = device::load<N>(b.grads + i);
  device::Floats<N> state[S];
  for (int s = 0; s < S; ++s) state[s] = device::load<N>(b.state[s] + i);
  for (int k = 0; k < N; ++k) {
    float kept[S];
    for (int s = 0; s < S; ++s) kept[s] = state[s][k];
    element(master[k], grads[k], kept);
    for (int s = 0; s < S; ++s) state[s][k] = kept[s];
  }
  device::store(b.master + i, master);
  for (int s = 0; s < S; ++s) device::store(b.state[s] + i, state[s]);
  if (b.copy != nullptr) device::store(b.copy + i, master);
}

template <int N, class P, class W, int S, class Element>
__global__ void update_kernel(UpdateBuffers<P, W, S> b, Element element) {
  std::int64_t i = (static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) * N;
  if (i + N <= b.count) return update_piece<N>(b, element, i);
  for (; i < b.count; ++i) update_piece<1>(b, element, i);
}

template <class P, class W, int S, class Element, class Launch>
void launch_update(const UpdateBuffers<P, W, S>& b, const Element& element, const Launch& launch) {
  constexpr int kPiece = device::kPiece<P>;
  bool whole =
      device::in_pieces<kPiece>(b.master, {}) && device::in_pieces<kPiece>(b.grads, {}) && device::in_pieces<kPiece>(b.copy, {});
  for (P* const state : b.state) whole = whole && device::in_pieces<kPiece>(state, {});
  device::with_piece<kPiece>(whole, [&](auto n) {
    launch(device::flat_shape((b.count + n - 1) / n), &update_kernel<n(), P, W, S, Element>, b, element);
  });
}

}  // namespace qft::optim::cuda
