// Offloaded activations: the layers' inputs of one micro-batch, in host memory from forward to backward.
#pragma once

#include "qft/device/stream.h"

#include <vector>

#include <ATen/core/Tensor.h>

namespace qft::parallel {

/// Copies run on a stream of their own, beside the computation. Host memory (pinned for CUDA) is kept from step to step.
class OffloadedActivations {
 public:
  explicit OffloadedActivations(c10::Device device);

  /// Copies `x` to host memory. Work on the current stream may overwrite `x` if it is queued after the next call of keep().
  void keep(int layer, const at::Tensor& x);
  /// The input of `layer` in one of two buffers of its size, ready for the current stream; call it from the top layer down.
  /// Unless `last`, it prefetches the input of the layer below into the other buffer, whose contents must not be needed
  /// any more.
  at::Tensor fetch(int layer, const at::Tensor& even, const at::Tensor& odd, bool last);

  /// Bytes of host memory.
  std::int64_t bytes() const;

 private:
  void start_fetch(int layer, const at::Tensor& to);

  device::Stream copies_;
  device::Event copied_;
  std::vector<at::Tensor> kept_;  ///< per layer, of the shape that it has now
  std::vector<at::Tensor> memory_;
  int coming_ = -1;  ///< the layer whose input is being prefetched
};

}  // namespace qft::parallel
