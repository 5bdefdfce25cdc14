// A flat buffer of which each rank of a group owns an equal slice.
#pragma once

#include <algorithm>
#include <cstdint>

#include <ATen/core/Tensor.h>

#include "qft/comm/communicator.h"

namespace qft::parallel {

/// Bytes now and at most so far.
class Gauge {
 public:
  void add(std::int64_t bytes) { peak_ = std::max(peak_, now_ += bytes); }
  std::int64_t now() const { return now_; }
  std::int64_t peak() const { return peak_; }

 private:
  std::int64_t now_ = 0, peak_ = 0;
};

/// How `n` elements divide: slices of `chunk` elements, the last ones padded.
struct Division {
  std::int64_t n = 0, chunk = 0;
  int ranks = 1, rank = 0;

  /// Slices start on a multiple of this many elements, so that vector loads and NCCL stay aligned.
  static constexpr std::int64_t kAlignment = 16;
  /// Elements of a slice: an equal share of `n`, rounded up to the alignment.
  static std::int64_t share(std::int64_t n, int ranks);

  Division() = default;
  Division(std::int64_t n, const comm::Communicator& comm);

  std::int64_t padded() const { return chunk * ranks; }
  std::int64_t begin() const { return std::min(chunk * rank, n); }
  /// Elements of this rank's slice that are not padding.
  std::int64_t length() const { return std::min(chunk, n - begin()); }
  /// This rank's slice of a buffer of padded() elements.
  at::Tensor slice_of(const at::Tensor& padded_buffer) const { return padded_buffer.narrow(0, chunk * rank, chunk); }
};

/// The type in which gradients of several ranks add up.
inline at::ScalarType wide(at::ScalarType type) { return type == at::kDouble ? at::kDouble : at::kFloat; }

/// Frees a tensor's memory now, whatever views of it there are: they see a storage of size 0 from then on.
void free_storage(at::Tensor& tensor);

class SplitBuffer {
 public:
  SplitBuffer() = default;
  /// `replicated`: the whole is there always, and this rank's slice is a view of it. Else only the slice is, zeroed.
  SplitBuffer(std::int64_t n, const at::TensorOptions& options, comm::Communicator& comm, bool replicated, Gauge& gathered);

  bool empty() const { return division_.n == 0; }
  const Division& division() const { return division_; }
  /// [chunk], to be written by its owner.
  const at::Tensor& slice() const { return slice_; }
  /// True where the whole comes and goes.
  bool comes_and_goes() const { return !empty() && !replicated_ && division_.ranks > 1; }
  std::int64_t gathered_bytes() const;

  /// The whole sets out for here unless it is here, up to date, or on its way. Collective. True if it did.
  bool gather();
  /// [n], once complete. Collective where gather() was not called.
  at::Tensor whole();
  /// The owners have written their slices: copies of the whole are out of date.
  void changed();
  /// The memory of the whole is given back, if it comes and goes.
  void let_go();
  void poll() { gather_.test(); }

 private:
  Division division_;
  comm::Communicator* comm_ = nullptr;
  Gauge* gathered_ = nullptr;
  bool replicated_ = true;
  bool current_ = false;  ///< the whole is, or will be once gather_ is complete, what the owners have
  at::Tensor slice_, whole_;
  comm::Work gather_;
};

}  // namespace qft::parallel
