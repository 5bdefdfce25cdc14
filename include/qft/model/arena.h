// Memory for activations: a stack of tensors per in-flight micro-batch. Forward pushes, backward pops in reverse
// order, so a mark and a release are all the bookkeeping there is; pages stay mapped from step to step.
#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

namespace qft::model {

class Arena {
 public:
  /// Where the stack stood; release() to it frees everything allocated since.
  struct Mark {
    std::size_t chunk = 0;
    std::int64_t used = 0;
  };

  explicit Arena(c10::Device device) : device_(device) {}
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  /// Makes sure that `bytes` lie in one piece. Only while nothing is allocated.
  void reserve(std::int64_t bytes);
  /// An uninitialised contiguous tensor that lives until a release() to an earlier mark.
  at::Tensor alloc(at::IntArrayRef shape, at::ScalarType dtype);
  Mark mark() const { return {current_, used_}; }
  /// Frees all tensors allocated after `mark`. Their storage is reused: no view of them may be read afterwards.
  void release(Mark mark);
  /// Bytes of memory in use: on the host, which allocates a page when it is first touched, the most that was ever used; elsewhere
  /// all that is reserved.
  std::int64_t held() const;

 private:
  std::int64_t reserved() const;

  c10::Device device_;
  std::vector<at::Tensor> chunks_;     ///< byte tensors
  std::vector<std::int64_t> touched_;  ///< of each chunk, bytes from its start
  std::size_t current_ = 0;
  std::int64_t used_ = 0;  ///< bytes of chunks_[current_]
};

}  // namespace qft::model
