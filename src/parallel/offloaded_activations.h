// Offloaded activations: the layer inputs of one micro-batch, held in host memory from forward to backward.
#pragma once

#include "qft/device/stream.h"

#include <vector>

#include <ATen/core/Tensor.h>

namespace qft::parallel {

/// Copies run on a separate stream, in parallel to the computation. Host memory (pinned for CUDA) is kept from step to step.
class OffloadedActivations {
 public:
  explicit OffloadedActivations(c10::Device device);

  /// Copies `x` to host memory. Work on the current stream may overwrite `x` if it is queued after the next call of keep().
  void keep(int layer, const at::Tensor& x);
  /// Returns the input of `layer` in `even` or `odd`, two buffers of its size, ready for the current stream. Call it from the top
  /// layer down. Unless `last`, it prefetches the input of the layer below into the other buffer and overwrites that buffer.
  at::Tensor fetch(int layer, const at::Tensor& even, const at::Tensor& odd, bool last);

  /// Returns the bytes of host memory.
  std::int64_t bytes() const;

 private:
  void start_fetch(int layer, const at::Tensor& to);

  device::Stream copies_;
  device::Event copied_;
  std::vector<at::Tensor> kept_;  ///< per layer, with its current shape
  std::vector<at::Tensor> memory_;
  int fetching_ = -1;  ///< the layer whose input is in flight
};

}  // namespace qft::parallel
