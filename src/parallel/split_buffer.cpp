#include "qft/parallel/split_buffer.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/zeros.h>

#include "qft/core/error.h"
#include "qft/model/load.h"

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
    block = at::empty({bytes}, at::TensorOptions().dtype(at::kByte));
  } else {
    block = std::move(free.back());
    free.pop_back();
  }
  void* const data = block.data_ptr();
  return at::from_blob(data, {n}, [blocks = blocks_, block, bytes](void*) { (*blocks)[bytes].push_back(block); }, options);
}

SplitBuffer::SplitBuffer(std::int64_t n, const at::TensorOptions& options, comm::Communicator& comm, const Keeping& keeping,
                         Transfers& transfers)
    : division_(n, comm), comm_(&comm), transfers_(&transfers), keeping_(keeping) {
  if (n == 0) return;
  // Zeros: alignment gaps and padding take part in sums and in the optimizer's arithmetic.
  rest_ = at::zeros({rest_is_whole() ? division_.padded() : division_.chunk},
                    keeping.offloaded ? host_options(options) : options);
  slice_ = rest_is_whole() ? division_.slice_of(rest_) : rest_;
  if (keeping.offloaded) copied_.emplace(transfers.copies.device());
  if (comes_and_goes()) return;
  whole_ = rest_;
  current_ = true;
}

std::int64_t SplitBuffer::gathered_bytes() const {
  return comes_and_goes() ? division_.padded() * static_cast<std::int64_t>(slice_.element_size()) : 0;
}

void SplitBuffer::make_room() {
  if (empty() || whole_.defined()) return;
  whole_ = transfers_->pool.take(division_.padded(), slice_.options().device(transfers_->copies.device()).pinned_memory(false));
  transfers_->gathered.add(gathered_bytes());
}

void SplitBuffer::gather() {
  if (empty() || current_) return;
  make_room();
  if (keeping_.offloaded) {
    gather_from_host();
  } else {
    gather_ = comm_->start_all_gather(slice_.data_ptr(), whole_.data_ptr(), static_cast<std::size_t>(division_.chunk),
                                      model::dtype_of(slice_.scalar_type()));
  }
  current_ = true;
}

/// On a stream of its own, beside the computation.
void SplitBuffer::gather_from_host() {
  const device::Stream& copies = transfers_->copies;
  device::Event free(copies.device());  // what used this memory before may still run
  free.record(device::Stream::current(copies.device()));
  copies.wait(free);
  const device::StreamGuard beside(copies);
  if (rest_is_whole() && !rest_stale_) {
    whole_.copy_(rest_, /*non_blocking=*/true);
  } else {
    const at::Tensor mine = division_.slice_of(whole_);
    mine.copy_(slice_, /*non_blocking=*/true);
    gather_ = comm_->start_all_gather(mine.data_ptr(), whole_.data_ptr(), static_cast<std::size_t>(division_.chunk),
                                      model::dtype_of(whole_.scalar_type()));
  }
  copied_->record(copies);
}

/// What is on its way has come, and what is kept is up to date with it.
void SplitBuffer::settle() {
  gather_.wait();
  if (copied_) device::Stream::current(transfers_->copies.device()).wait(*copied_);
  if (!rest_stale_ || !current_) return;
  if (keeping_.offloaded) rest_.copy_(whole_);
  rest_stale_ = false;
}

at::Tensor SplitBuffer::whole() {
  if (empty()) return {};
  gather();
  settle();
  return whole_.narrow(0, 0, division_.n);
}

void SplitBuffer::changed() {
  if (empty() || division_.ranks == 1) return;
  QFT_ASSERT(!comes_and_goes() || !whole_.defined(), "weights change while gathered copies of {} elements are here", division_.n);
  settle();
  current_ = false;
  rest_stale_ = rest_is_whole();
}

void SplitBuffer::let_go() {
  if (!comes_and_goes() || !whole_.defined()) return;
  settle();
  free_storage(whole_);
  transfers_->gathered.add(-gathered_bytes());
  current_ = false;
}

}  // namespace qft::parallel
