// Memory for activations: a stack of tensors per in-flight micro-batch. Forward pushes and backward pops in reverse order, so a
// mark and a release suffice. Pages stay mapped from step to step.
#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

namespace qft::model {

class Arena {
 public:
  /// A position of the stack; release() to it frees everything allocated since.
  struct Mark {
    std::size_t chunk = 0;
    std::int64_t used = 0;
  };

  explicit Arena(c10::Device device) : device_(device) {}
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  /// Makes `bytes` contiguous bytes available. Call only while nothing is allocated.
  void reserve(std::int64_t bytes);
  /// Returns an uninitialised contiguous tensor that lives until a release() to an earlier mark.
  at::Tensor alloc(at::IntArrayRef shape, at::ScalarType dtype);
  Mark mark() const { return {current_, used_}; }
  /// Frees all tensors allocated after `mark`. Their storage is reused: no view of them may be read afterwards.
  void release(Mark mark);
  /// Returns the bytes of memory in use. On the host, which allocates pages on first touch, this is the maximum ever used; on
  /// other devices, everything reserved.
  std::int64_t bytes_in_use() const;

 private:
  std::int64_t reserved() const;

  c10::Device device_;
  std::vector<at::Tensor> chunks_;     ///< byte tensors
  std::vector<std::int64_t> touched_;  ///< bytes touched, from the start of each chunk
  std::size_t current_ = 0;
  std::int64_t used_ = 0;  ///< bytes used of chunks_[current_]
};

}  // namespace qft::model
