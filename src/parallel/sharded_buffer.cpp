#include "qft/parallel/sharded_buffer.h"

#include "qft/core/error.h"
#include "qft/device/scalar_type.h"
#include "qft/device/upload.h"

#include <exception>
#include <utility>

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/zeros.h>

namespace qft::parallel {

std::int64_t Division::share(std::int64_t n, int ranks) {
  const std::int64_t equal = (n + ranks - 1) / ranks;
  return (equal + kAlignment - 1) / kAlignment * kAlignment;
}

Division::Division(std::int64_t n, const comm::Communicator& comm)
    : n(n), chunk(share(n, comm.size())), ranks(comm.size()), rank(comm.rank()) {}

void free_storage(at::Tensor& tensor) {
  auto* storage = tensor.storage().unsafeGetStorageImpl();
  storage->reset();
  storage->set_nbytes(0);  // otherwise an operation would read the empty storage
  tensor.reset();
}

at::Tensor BlockPool::take(std::int64_t n, const at::TensorOptions& options) {
  if (!options.device().is_cpu()) return at::empty({n}, options);
  const auto bytes = n * static_cast<std::int64_t>(options.dtype().itemsize());
  auto& free = (*blocks_)[bytes];
  at::Tensor block;
  if (free.empty()) {
    block = device::host_tensor({bytes}, at::kByte, device_);
  } else {
    block = std::move(free.back());
    free.pop_back();
  }
  void* const data = block.data_ptr();
  return at::from_blob(data, {n}, [blocks = blocks_, block, bytes](void*) { (*blocks)[bytes].push_back(block); }, options);
}

void Transfers::join() const noexcept {
  try {
    device::Stream::current(copies.device()).wait(copies);
  } catch (const std::exception&) {
    // The device is lost, so its memory is never used again.
  }
}

ShardedBuffer::ShardedBuffer(std::int64_t n, const at::TensorOptions& options, comm::Communicator& comm,
                             const Residency& residency, Transfers& transfers)
    : division_(n, comm), comm_(&comm), transfers_(&transfers), residency_(residency) {
  if (n == 0) return;
  // Zeros, because sums and the optimizer also compute on alignment gaps and padding.
  const std::int64_t kept = keeps_whole() ? division_.padded() : division_.chunk;
  resident_ = residency.offloaded ? device::host_tensor({kept}, options.dtype().toScalarType(), options.device()).zero_()
                                  : at::zeros({kept}, options);
  slice_ = keeps_whole() ? division_.slice_of(resident_) : resident_;
  if (residency.offloaded) copied_.emplace(transfers.copies.device());
  if (frees_whole()) return;
  whole_ = resident_;
  current_ = true;
}

std::int64_t ShardedBuffer::gathered_bytes() const {
  return frees_whole() ? division_.padded() * static_cast<std::int64_t>(slice_.element_size()) : 0;
}

void ShardedBuffer::make_room() {
  if (empty() || whole_.defined()) return;
  whole_ = transfers_->pool.take(division_.padded(), slice_.options().device(transfers_->copies.device()));
  transfers_->gathered.add(gathered_bytes());
}

void ShardedBuffer::gather() {
  if (empty() || current_) return;
  if (!available_.empty()) return fetch({{0, division_.n}});
  make_room();
  if (residency_.offloaded) {
    gather_from_host();
  } else {
    gather_ = comm_->start_all_gather(slice_.data_ptr(), whole_.data_ptr(), static_cast<std::size_t>(division_.chunk),
                                      device::dtype_of(slice_.scalar_type()));
  }
  current_ = true;
}

/// Copies on a separate stream, in parallel to the computation.
void ShardedBuffer::gather_from_host() {
  const device::Stream& copies = transfers_->copies;
  copies.wait(device::Stream::current(copies.device()));  // work that used this memory before may still run
  const device::StreamGuard beside(copies);
  if (keeps_whole() && !resident_stale_) {
    whole_.copy_(resident_, /*non_blocking=*/true);
  } else {
    const at::Tensor mine = division_.slice_of(whole_);
    mine.copy_(slice_, /*non_blocking=*/true);
    gather_ = comm_->start_all_gather(mine.data_ptr(), whole_.data_ptr(), static_cast<std::size_t>(division_.chunk),
                                      device::dtype_of(whole_.scalar_type()));
  }
  copied_->record(copies);
}

bool ShardedBuffer::gather(const Ranges& parts) {
  if (empty() || current_) return true;
  const Ranges missing = difference(parts, available_);
  if (size_of(missing) == division_.n) {
    gather();
    return true;
  }
  QFT_ASSERT(gathers_parts(), "partial gather of a buffer of {} elements that is only gathered as a whole", division_.n);
  if (transfers_->staged.now() + bytes_of(missing) > transfers_->max_staging_bytes) return false;
  start(missing);
  return true;
}

void ShardedBuffer::start(const Ranges& parts) {
  if (parts.empty()) return;
  settle();  // only one set of parts may be in flight
  make_room();
  if (!keeps_whole()) {
    staging_ = at::empty({size_of(parts)}, whole_.options());
    staged_ = parts;
    for (Gauge* gauge : {&transfers_->gathered, &transfers_->staged}) gauge->add(bytes_of(parts));
  }
  if (residency_.offloaded) {
    const device::Stream& copies = transfers_->copies;
    copies.wait(device::Stream::current(copies.device()));  // as in gather_from_host()
    const device::StreamGuard beside(copies);
    send(parts);
    copied_->record(copies);
  } else {
    send(parts);
  }
  available_ = united(available_, parts);
  current_ = size_of(available_) == division_.n;
}

void ShardedBuffer::send(const Ranges& parts) {
  if (keeps_whole()) {
    for (const Range& part : parts)
      whole_.narrow(0, part.begin, part.size()).copy_(resident_.narrow(0, part.begin, part.size()), /*non_blocking=*/true);
    return;
  }
  std::vector<std::size_t> counts;
  std::int64_t before = 0;
  for (int r = 0; r < division_.ranks; ++r) {
    const std::int64_t count = size_of(within(parts, {r * division_.chunk, (r + 1) * division_.chunk}));
    counts.push_back(static_cast<std::size_t>(count));
    if (r < division_.rank) before += count;
  }
  // Slices ascend with the ranks, and so do their parts in the received buffer.
  const std::int64_t first = division_.chunk * division_.rank;
  std::int64_t to = before;
  for (const Range& part : within(parts, {first, first + division_.chunk})) {
    staging_.narrow(0, to, part.size()).copy_(slice_.narrow(0, part.begin - first, part.size()), /*non_blocking=*/true);
    to += part.size();
  }
  gather_ = comm_->start_all_gather_v(staging_.narrow(0, before, to - before).data_ptr(), staging_.data_ptr(), counts,
                                      device::dtype_of(staging_.scalar_type()));
}

void ShardedBuffer::unpack() {
  if (!staging_.defined()) return;
  std::int64_t from = 0;
  for (const Range& part : staged_) {
    whole_.narrow(0, part.begin, part.size()).copy_(staging_.narrow(0, from, part.size()));
    from += part.size();
  }
  for (Gauge* gauge : {&transfers_->gathered, &transfers_->staged}) gauge->add(-bytes_of(staged_));
  staged_.clear();
  staging_.reset();
}

void ShardedBuffer::fetch(const Ranges& parts) {
  if (empty()) return;
  settle();
  if (current_) return;
  if (available_.empty() && size_of(parts) == division_.n) {
    gather();
    return settle();
  }
  const std::int64_t most = Transfers::kPieceBytes / static_cast<std::int64_t>(slice_.element_size());
  Ranges piece;
  for (const Range& part : difference(parts, available_))
    for (std::int64_t begin = part.begin, end = begin; begin < part.end; begin = end) {
      end = std::min(part.end, begin + most - size_of(piece));
      append(piece, {begin, end});
      if (size_of(piece) == most) start(std::exchange(piece, {}));
    }
  start(piece);
  settle();
}

void ShardedBuffer::settle() {
  if (empty()) return;
  gather_.wait();
  if (copied_) device::Stream::current(transfers_->copies.device()).wait(*copied_);
  unpack();
  if (!resident_stale_ || !current_) return;
  if (residency_.offloaded) resident_.copy_(whole_);
  resident_stale_ = false;
}

at::Tensor ShardedBuffer::whole() {
  gather();
  return view();
}

at::Tensor ShardedBuffer::view() {
  if (empty()) return {};
  make_room();  // possibly no part was gathered
  settle();
  return whole_.narrow(0, 0, division_.n);
}

void ShardedBuffer::mark_stale() {
  if (empty() || division_.ranks == 1) return;
  QFT_ASSERT(!frees_whole() || !whole_.defined(), "weights change while gathered copies of {} elements are here", division_.n);
  gather_.wait();  // the gather after the previous change: MPI's gathers may overtake each other
  current_ = false;
  resident_stale_ = keeps_whole();
}

void ShardedBuffer::free_whole() {
  if (!frees_whole() || !whole_.defined()) return;
  settle();
  free_storage(whole_);
  transfers_->gathered.add(-gathered_bytes());
  current_ = false;
  available_.clear();
}

}  // namespace qft::parallel
