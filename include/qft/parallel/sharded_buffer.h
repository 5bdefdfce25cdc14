// A flat buffer in which each rank of a group owns an equal slice.
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

/// Current and peak bytes.
class Gauge {
 public:
  void add(std::int64_t bytes) { peak_ = std::max(peak_, now_ += bytes); }
  std::int64_t now() const { return now_; }
  std::int64_t peak() const { return peak_; }

 private:
  std::int64_t now_ = 0, peak_ = 0;
};

/// Divides `n` elements into slices of `chunk` elements; the last ones are padded.
struct Division {
  std::int64_t n = 0, chunk = 0;
  int ranks = 1, rank = 0;

  /// Slices start at a multiple of this many elements, so that vector loads and NCCL stay aligned.
  static constexpr std::int64_t kAlignment = 16;
  /// Returns the elements of a slice: an equal share of `n`, rounded up to the alignment.
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

/// Returns the type in which gradients of several ranks are summed.
inline at::ScalarType wide(at::ScalarType type) {
  return type == at::kDouble ? at::kDouble : at::kFloat;
}

/// Frees a tensor's memory now, even if views of it exist; such views then see a storage of size 0.
void free_storage(at::Tensor& tensor);

/// A pool for memory that is taken and freed repeatedly in a few sizes. The heap would use a freed block for something small and
/// then need a new one, and pinning is slow. CUDA's allocator already is such a pool.
class BlockPool {
 public:
  /// Host memory is allocated for copies to and from `device`.
  explicit BlockPool(c10::Device device) : device_(device) {}

  /// Returns an uninitialised tensor [n]. Its memory returns to the pool when its storage is freed.
  at::Tensor take(std::int64_t n, const at::TensorOptions& options);

 private:
  using Blocks = std::map<std::int64_t, std::vector<at::Tensor>>;  ///< free blocks by bytes
  c10::Device device_;
  std::shared_ptr<Blocks> blocks_ = std::make_shared<Blocks>();
};

/// State that the buffers of one store share.
struct Transfers {
  static constexpr std::int64_t kPieceBytes = std::int64_t{64} << 20;  ///< size of one transfer in fetch()

  device::Stream copies;  ///< copies between host and device
  Gauge gathered;         ///< gathered bytes
  Gauge staged;           ///< staging bytes of partial gathers, included in `gathered`
  std::int64_t max_staging_bytes = 0;
  BlockPool pool;
  /// Makes the current stream wait for all copies, so that later work, such as reuse of freed memory, comes after them.
  void join() const noexcept;
};

/// How much a buffer keeps between uses, and where.
struct Residency {
  bool whole = false;      ///< true: every rank keeps all slices; false: only its own
  bool offloaded = false;  ///< in host memory
};

class ShardedBuffer {
 public:
  ShardedBuffer() = default;
  /// Zeroed. `options`: type, and the device that uses the whole buffer. `comm` and `transfers` must outlive the buffer.
  ShardedBuffer(std::int64_t n, const at::TensorOptions& options, comm::Communicator& comm, const Residency& residency,
                Transfers& transfers);

  bool empty() const { return division_.n == 0; }
  const Division& division() const { return division_; }
  /// [chunk], written by its owner; in host memory if offloaded.
  const at::Tensor& slice() const { return slice_; }
  /// The memory kept between uses: [padded] if keeps_whole(), else the slice.
  const at::Tensor& resident() const { return resident_; }
  bool keeps_whole() const { return residency_.whole || division_.ranks == 1; }
  /// True if the whole buffer exists only while it is used.
  bool frees_whole() const { return !empty() && (residency_.offloaded || !keeps_whole()); }
  std::int64_t gathered_bytes() const;
  /// True if single parts can be gathered.
  bool gathers_parts() const { return frees_whole() && (!residency_.whole || division_.ranks == 1); }

  /// Allocates the memory that gather() fills, unless it exists. Not collective.
  void make_room();
  /// Starts gathering the whole buffer, unless it is up to date or in flight. If some parts are already here, gathers the other
  /// parts and waits for them. Collective.
  void gather();
  /// Starts gathering these parts only; the same parts on every rank. Unless gathers_parts(), they must be the whole buffer. The
  /// parts travel through a staging buffer of their size, which lives until fetch(). Returns false and starts nothing if the
  /// store's staging buffers would exceed Transfers::max_staging_bytes; returns true if all parts are here or in flight.
  /// Collective.
  bool gather(const Ranges& parts);
  /// Waits for these parts. Gathers parts that are not in flight, in pieces of at most kPieceBytes. Collective.
  void fetch(const Ranges& parts);
  /// Returns the complete buffer, [n]. Collective unless gather() was called before.
  at::Tensor whole();
  /// Returns the buffer, [n], of which only the parts passed to fetch() are complete.
  at::Tensor view();
  /// True if these parts are here or in flight.
  bool has(const Ranges& parts) const { return empty() || current_ || difference(parts, available_).empty(); }
  /// Marks copies of the whole as out of date, because the owners have written their slices.
  void mark_stale();
  /// Frees the whole buffer if frees_whole().
  void free_whole();
  void poll() { gather_.test(); }
  /// Makes the current stream wait for the gather in flight and brings the kept buffer up to date with it.
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
  bool current_ = false;         ///< the whole buffer is up to date, or will be when its gather completes
  bool resident_stale_ = false;  ///< only this rank's slice of the kept buffer is up to date
  Ranges available_;             ///< if not current_: the parts of the whole buffer that are up to date or in flight
  at::Tensor resident_, slice_, whole_;
  Ranges staged_;       ///< the parts in flight
  at::Tensor staging_;  ///< their memory, one part after the other
  comm::Work gather_;
  std::optional<device::Event> copied_;
};

}  // namespace qft::parallel
