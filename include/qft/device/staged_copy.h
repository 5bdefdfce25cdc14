// Copies between device memory and host memory that is not pinned, at the speed of pinned memory.
#pragma once

#include "qft/device/memory.h"
#include "qft/device/stream.h"

#include <array>
#include <cstddef>
#include <memory>

#include <ATen/core/Tensor.h>

namespace qft::device {

/// Two pinned buffers in turn: one is copied from or to the device while the host reads or writes the other. For one thread.
class StagedCopy {
 public:
  /// Bytes of pinned memory that one takes.
  static constexpr std::size_t kBytes = std::size_t{32} << 20;

  explicit StagedCopy(c10::Device device) : device_(device) {}
  /// Waits for copies under way.
  ~StagedCopy();
  StagedCopy(const StagedCopy&) = delete;
  StagedCopy& operator=(const StagedCopy&) = delete;

  /// Takes the buffers, which otherwise the first copy does that needs them; nothing on the CPU. Throws Error where they cannot
  /// be had.
  void reserve();
  /// `to`, contiguous in host memory, becomes `from`, of as many elements, on the host or the device, behind the current stream's
  /// work so far. Another type is converted where `from` is. Returns when it is done.
  void to_host(const at::Tensor& to, const at::Tensor& from);
  /// `from` in host memory, contiguous, as `dtype`: itself where it is all of that.
  at::Tensor on_host(const at::Tensor& from, at::ScalarType dtype);
  /// `to`, contiguous, on the host or the device, becomes `from`, contiguous in host memory, of its type and size, in the order
  /// of the current stream. `from` may change once this returns.
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
