// The layers' inputs of one micro-batch in host memory, from forward to backward.
#pragma once

#include <vector>

#include <ATen/core/Tensor.h>

#include "qft/device/stream.h"

namespace qft::parallel {

/// Copies run on a stream of their own, beside the computation. Host memory (pinned for CUDA) is kept from step to step.
class LayerInputs {
 public:
  explicit LayerInputs(c10::Device device);

  /// Copies `x` out. It may be overwritten by work of the current stream once keep() was called again, for another
  /// tensor, and that work was queued after that.
  void keep(int layer, const at::Tensor& x);
  /// The input of `layer` in one of two buffers of its size, ready for the current stream; the layers come downwards.
  /// Unless it is the `last` one the input of the layer below sets out for the other buffer, whose contents must not be
  /// needed any more.
  at::Tensor fetch(int layer, const at::Tensor& even, const at::Tensor& odd, bool last);

  /// Bytes of host memory.
  std::int64_t bytes() const;

 private:
  void start_fetch(int layer, const at::Tensor& to);

  device::Stream copies_;
  device::Event copied_;
  std::vector<at::Tensor> kept_;  ///< per layer, of the shape that it has now
  std::vector<at::Tensor> memory_;
  int coming_ = -1;               ///< the layer whose input has set out
};

}  // namespace qft::parallel
