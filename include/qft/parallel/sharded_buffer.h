// A flat buffer of which each rank of a group owns an equal slice.
#pragma once

#include "qft/comm/communicator.h"
#include "qft/device/stream.h"
#include "qft/parallel/ranges.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include <ATen/core/Tensor.h>

namespace qft::parallel {

/// Bytes now, and their peak.
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
inline at::ScalarType wide(at::ScalarType type) {
  return type == at::kDouble ? at::kDouble : at::kFloat;
}

/// Frees a tensor's memory now, whatever views of it there are: they see a storage of size 0 from then on.
void free_storage(at::Tensor& tensor);

/// A pool of memory that is taken and freed again and again in few sizes. The heap would use a freed block for something small
/// and need a new one next time, and pinning is slow; CUDA's allocator is such a pool itself.
class BlockPool {
 public:
  /// Host memory is made for copies with `device`.
  explicit BlockPool(c10::Device device) : device_(device) {}

  /// Uninitialised [n]; its memory returns to the pool when its storage is freed.
  at::Tensor take(std::int64_t n, const at::TensorOptions& options);

 private:
  using Blocks = std::map<std::int64_t, std::vector<at::Tensor>>;  ///< free ones by bytes
  c10::Device device_;
  std::shared_ptr<Blocks> blocks_ = std::make_shared<Blocks>();
};

/// What the buffers of one store have in common.
struct Transfers {
  static constexpr std::int64_t kPieceBytes = std::int64_t{64} << 20;  ///< that parts travel by where they are waited for

  device::Stream copies;  ///< between host and device
  Gauge gathered;         ///< gathered bytes
  Gauge staged;           ///< those of them by which parts travel
  std::int64_t staging_limit = 0;
  BlockPool pool;
  /// What is queued on the current stream from now on, such as the reuse of freed memory, comes after all copies.
  void join() const noexcept;
};

/// What a buffer keeps between uses, and where.
struct Residency {
  bool whole = false;      ///< every rank keeps all slices, else its own only
  bool offloaded = false;  ///< in host memory
};

class ShardedBuffer {
 public:
  ShardedBuffer() = default;
  /// Zeroed. `options`: type, and the device on which the whole is used. `comm` and `transfers` must outlive the buffer.
  ShardedBuffer(std::int64_t n, const at::TensorOptions& options, comm::Communicator& comm, const Residency& residency,
                Transfers& transfers);

  bool empty() const { return division_.n == 0; }
  const Division& division() const { return division_; }
  /// [chunk], to be written by its owner; in host memory where offloaded.
  const at::Tensor& slice() const { return slice_; }
  /// What is kept between uses: [padded] if rest_is_whole(), else the slice.
  const at::Tensor& rest() const { return rest_; }
  bool rest_is_whole() const { return residency_.whole || division_.ranks == 1; }
  /// True where the whole buffer exists only while it is used.
  bool frees_whole() const { return !empty() && (residency_.offloaded || !rest_is_whole()); }
  std::int64_t gathered_bytes() const;
  /// Whether parts of it can be gathered by themselves.
  bool gathers_parts() const { return frees_whole() && (!residency_.whole || division_.ranks == 1); }

  /// Allocates the memory that gather() fills, unless that is done. Not collective.
  void make_room();
  /// Starts gathering the whole buffer, unless it is up to date or in flight; brings the rest where parts are here. Collective.
  void gather();
  /// The same for these parts alone, which are the whole unless gathers_parts(); the same on every rank. They travel by way of a
  /// buffer of their size, which lives until bring(): where those of a store would be larger than its limit, nothing is started.
  /// Whether all of them are here or on their way.
  bool gather(const Ranges& parts);
  /// Waits for these parts. What is not on its way comes a piece at a time. Collective.
  void bring(const Ranges& parts);
  /// [n], once complete. Collective where gather() was not called.
  at::Tensor whole();
  /// [n], of which what bring() was called for is complete.
  at::Tensor here();
  /// Whether these parts are here, or on their way.
  bool has(const Ranges& parts) const { return empty() || current_ || difference(parts, here_).empty(); }
  /// The owners have written their slices: copies of the whole are out of date.
  void changed();
  /// Frees the whole buffer, if frees_whole().
  void free_whole();
  void poll() { gather_.test(); }
  /// The current stream waits for the gather in flight; the kept buffer is up to date with it then.
  void settle();

 private:
  void gather_from_host();
  std::int64_t bytes_of(const Ranges& parts) const { return size_of(parts) * static_cast<std::int64_t>(slice_.element_size()); }
  void start(const Ranges& parts);
  void send(const Ranges& parts);
  void unpack();

  Division division_;
  comm::Communicator* comm_ = nullptr;
  Transfers* transfers_ = nullptr;
  Residency residency_;
  bool current_ = false;     ///< the whole buffer is up to date, or will be when its gather is complete
  bool rest_stale_ = false;  ///< of the kept buffer only this rank's slice is up to date
  Ranges here_;              ///< of the whole buffer, where it is not current: what is up to date, or will be
  at::Tensor rest_, slice_, whole_;
  Ranges staged_;       ///< the parts on their way
  at::Tensor staging_;  ///< one after the other
  comm::Work gather_;
  std::optional<device::Event> copied_;
};

}  // namespace qft::parallel
