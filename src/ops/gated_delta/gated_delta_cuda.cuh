// Launches the gated delta rule's kernels, wave by wave.
#pragma once

#include <span>

#include "../common/launches_cuda.h"
#include "gated_delta_chunks_cuda.cuh"
#include "gated_delta_gradients_cuda.cuh"
#include "gated_delta_walk_cuda.cuh"

namespace qft::ops::cuda {

/// A wave's launch shapes, and its part of the call's operands.
template <class T>
struct DeltaLaunch {
  DeltaOperands<T> a;
  DeltaWave wave;

  DeltaLaunch(const DeltaOperands<T>& all, const DeltaWave& w) : a(all), wave(w) {
    a.chunks += w.first_chunk, a.chains += w.first_chain, a.segments += w.first_segment;
  }

  std::int64_t key_rows() const { return wave.chunks * a.shape.key_heads * kRows; }
  /// One warp per row of a key head.
  device::LaunchShape warps() const { return device::rows_shape(key_rows(), 1); }
  /// One block per item in `count`, value head, and group of `each` columns in `width`.
  device::LaunchShape blocks(std::int64_t count, std::int64_t width = 1, std::int64_t each = 1) const {
    return {dim3(static_cast<unsigned>(count * a.shape.value_heads), static_cast<unsigned>((width + each - 1) / each)),
            dim3(kDeltaThreads)};
  }
  DeltaStates states(const DeltaChain* chains, std::int64_t parity) const {
    return {a.shape, a.scratch, a.chunks, chains, a.keep, a.kept, parity};
  }
};

template <class T, class Launch>
void launch_delta_forward(const DeltaOperands<T>& all, std::span<const DeltaWave> waves, const Launch& launch) {
  std::int64_t parity = 0;
  for (const DeltaWave& wave : waves) {
    const DeltaLaunch<T> l(all, wave);
    const std::int64_t values = l.a.scratch.value_width;
    launch(l.warps(), &delta_norms_kernel<T>, l.a, l.key_rows());
    launch(l.blocks(wave.chunks), &delta_system_kernel<false, T>, l.a);
    launch(l.blocks(wave.chains, values, kSlice), &delta_walk_kernel<false>, l.states(l.a.chains, parity));
    launch(l.blocks(wave.chunks, values, kRows), &delta_out_kernel<T>, l.a);
    parity = 1 - parity;
  }
}

template <class T, class Launch>
void launch_delta_backward(const DeltaOperands<T>& all, std::span<const DeltaWave> waves, const Launch& launch) {
  std::int64_t parity = 0;
  for (auto wave = waves.rbegin(); wave != waves.rend(); ++wave) {
    const DeltaLaunch<T> l(all, *wave);
    const std::int64_t values = l.a.scratch.value_width;
    launch(l.warps(), &delta_norms_kernel<T>, l.a, l.key_rows());
    launch(l.blocks(wave->chunks), &delta_system_kernel<true, T>, l.a);
    launch(l.blocks(wave->segments, values, kSlice), &delta_walk_kernel<false>, l.states(l.a.segments, parity));
    launch(l.blocks(wave->chains, values, kSlice), &delta_walk_kernel<true>, l.states(l.a.chains, parity));
    launch(l.blocks(wave->chunks), &delta_gradients_kernel<T>, l.a);
    launch(l.warps(), &delta_norms_backward_kernel<T>, l.a, l.key_rows());
    parity = 1 - parity;
  }
}

}  // namespace qft::ops::cuda
