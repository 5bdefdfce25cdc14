#include "split_buffer.h"

#include <ATen/ops/empty.h>
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

SplitBuffer::SplitBuffer(std::int64_t n, const at::TensorOptions& options, comm::Communicator& comm, bool replicated,
                         Gauge& gathered)
    : division_(n, comm), comm_(&comm), gathered_(&gathered), replicated_(replicated) {
  if (n == 0) return;
  // Zeros: alignment gaps and padding take part in sums and in the optimizer's arithmetic.
  if (replicated || division_.ranks == 1) {
    whole_ = at::zeros({division_.padded()}, options);
    slice_ = division_.slice_of(whole_);
    current_ = true;
  } else {
    slice_ = at::zeros({division_.chunk}, options);
  }
}

std::int64_t SplitBuffer::gathered_bytes() const {
  return comes_and_goes() ? division_.padded() * static_cast<std::int64_t>(slice_.element_size()) : 0;
}

bool SplitBuffer::gather() {
  if (empty() || current_) return false;
  if (!whole_.defined()) {
    whole_ = at::empty({division_.padded()}, slice_.options());
    gathered_->add(gathered_bytes());
  }
  gather_ = comm_->start_all_gather(slice_.data_ptr(), whole_.data_ptr(), static_cast<std::size_t>(division_.chunk),
                                    model::dtype_of(slice_.scalar_type()));
  current_ = true;
  return true;
}

at::Tensor SplitBuffer::whole() {
  if (empty()) return {};
  gather();
  gather_.wait();
  return whole_.narrow(0, 0, division_.n);
}

void SplitBuffer::changed() {
  if (empty() || division_.ranks == 1) return;
  QFT_ASSERT(replicated_ || !whole_.defined(), "weights change while gathered copies of {} elements are here", division_.n);
  gather_.wait();
  current_ = false;
}

void SplitBuffer::let_go() {
  if (!comes_and_goes() || !whole_.defined()) return;
  gather_.wait();
  free_storage(whole_);
  gathered_->add(-gathered_bytes());
  current_ = false;
}

}  // namespace qft::parallel
