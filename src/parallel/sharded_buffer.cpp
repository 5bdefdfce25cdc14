#include "qft/parallel/sharded_buffer.h"

#include "qft/core/error.h"
#include "qft/device/host_tensor.h"
#include "qft/device/scalar_type.h"

#include <exception>

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
  storage->set_nbytes(0);  // without this a product would read the empty storage
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
    // The device is lost: nothing of its memory is used again.
  }
}

ShardedBuffer::ShardedBuffer(std::int64_t n, const at::TensorOptions& options, comm::Communicator& comm,
                             const Residency& residency, Transfers& transfers)
    : division_(n, comm), comm_(&comm), transfers_(&transfers), residency_(residency) {
  if (n == 0) return;
  // Zeros: alignment gaps and padding take part in sums and in the optimizer's arithmetic.
  const std::int64_t kept = rest_is_whole() ? division_.padded() : division_.chunk;
  rest_ = residency.offloaded ? device::host_tensor({kept}, options.dtype().toScalarType(), options.device()).zero_()
                              : at::zeros({kept}, options);
  slice_ = rest_is_whole() ? division_.slice_of(rest_) : rest_;
  if (residency.offloaded) copied_.emplace(transfers.copies.device());
  if (frees_whole()) return;
  whole_ = rest_;
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
  make_room();
  if (residency_.offloaded) {
    gather_from_host();
  } else {
    gather_ = comm_->start_all_gather(slice_.data_ptr(), whole_.data_ptr(), static_cast<std::size_t>(division_.chunk),
                                      device::dtype_of(slice_.scalar_type()));
  }
  current_ = true;
}

/// Copies on a stream of its own, in parallel to the computation.
void ShardedBuffer::gather_from_host() {
  const device::Stream& copies = transfers_->copies;
  copies.wait(device::Stream::current(copies.device()));  // what used this memory before may still run
  const device::StreamGuard beside(copies);
  if (rest_is_whole() && !rest_stale_) {
    whole_.copy_(rest_, /*non_blocking=*/true);
  } else {
    const at::Tensor mine = division_.slice_of(whole_);
    mine.copy_(slice_, /*non_blocking=*/true);
    gather_ = comm_->start_all_gather(mine.data_ptr(), whole_.data_ptr(), static_cast<std::size_t>(division_.chunk),
                                      device::dtype_of(whole_.scalar_type()));
  }
  copied_->record(copies);
}

void ShardedBuffer::settle() {
  if (empty()) return;
  gather_.wait();
  if (copied_) device::Stream::current(transfers_->copies.device()).wait(*copied_);
  if (!rest_stale_ || !current_) return;
  if (residency_.offloaded) rest_.copy_(whole_);
  rest_stale_ = false;
}

at::Tensor ShardedBuffer::whole() {
  if (empty()) return {};
  gather();
  settle();
  return whole_.narrow(0, 0, division_.n);
}

void ShardedBuffer::changed() {
  if (empty() || division_.ranks == 1) return;
  QFT_ASSERT(!frees_whole() || !whole_.defined(), "weights change while gathered copies of {} elements are here", division_.n);
  gather_.wait();  // of the change before: MPI's gathers may overtake each other
  current_ = false;
  rest_stale_ = rest_is_whole();
}

void ShardedBuffer::free_whole() {
  if (!frees_whole() || !whole_.defined()) return;
  settle();
  free_storage(whole_);
  transfers_->gathered.add(-gathered_bytes());
  current_ = false;
}

}  // namespace qft::parallel
