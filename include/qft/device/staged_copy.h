// Copies between device memory and unpinned host memory, at the speed of pinned memory.
#pragma once

#include "qft/device/memory.h"
#include "qft/device/stream.h"

#include <array>
#include <cstddef>
#include <memory>

#include <ATen/core/Tensor.h>

namespace qft::device {

/// Uses two pinned buffers in turn: the device copies from or to one while the host reads or writes the other. For one thread.
class StagedCopy {
 public:
  /// Bytes of pinned memory per StagedCopy.
  static constexpr std::size_t kBytes = std::size_t{32} << 20;

  explicit StagedCopy(c10::Device device) : device_(device) {}
  /// Waits for copies in flight.
  ~StagedCopy();
  StagedCopy(const StagedCopy&) = delete;
  StagedCopy& operator=(const StagedCopy&) = delete;

  /// Allocates the buffers; without this call the first copy that needs them does. Does nothing on the CPU. Throws Error if they
  /// cannot be allocated.
  void reserve();
  /// Copies `from`, on the host or the device, to `to`, contiguous in host memory with the same number of elements, after the
  /// current stream's work so far. Converts the type on the side of `from`. Returns when the copy is done.
  void to_host(const at::Tensor& to, const at::Tensor& from);
  /// Returns `from` as a contiguous host tensor of type `dtype`; `from` itself if it already is one.
  at::Tensor on_host(const at::Tensor& from, at::ScalarType dtype);
  /// Copies `from`, contiguous in host memory, to `to`, a contiguous tensor of the same type and size on the host or the device,
  /// in the order of the current stream. `from` may change once this returns.
  void to_device(const at::Tensor& to, const at::Tensor& from);

 private:
  struct Half {
    PinnedBuffer buffer;
    Event copied;  ///< the last copy from or to it
  };
  Half& half(std::size_t piece);

  c10::Device device_;
  std::array<std::unique_ptr<Half>, 2> halves_;
};

}  // namespace qft::device
