#include "qft/model/row_sharing.h"

#include "qft/core/clock.h"
#include "qft/core/error.h"
#include "qft/device/scalar_type.h"
#include "qft/model/share.h"

#include <algorithm>
#include <numeric>

namespace qft::model {
namespace {

std::int64_t width_of(const at::Tensor& rows) {
  return std::accumulate(rows.sizes().begin() + 1, rows.sizes().end(), std::int64_t{1}, std::multiplies());
}

/// Returns the elements of each rank's rows.
std::vector<std::size_t> elements(std::span<const std::int64_t> counts, std::int64_t width) {
  std::vector<std::size_t> sizes;
  for (const std::int64_t count : counts) sizes.push_back(static_cast<std::size_t>(count * width));
  return sizes;
}

void check(const at::Tensor& own, const at::Tensor& all, std::span<const std::int64_t> counts, int rank) {
  const std::int64_t total = std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
  QFT_ASSERT(
      own.is_contiguous() && all.is_contiguous() && own.scalar_type() == all.scalar_type() && width_of(own) == width_of(all),
      "rows of {} and of {} numbers are exchanged", width_of(own), width_of(all));
  QFT_ASSERT(own.size(0) == counts[static_cast<std::size_t>(rank)] && all.size(0) == total,
             "rank {} has {} of {} rows, expected are {} of {}", rank, own.size(0), all.size(0),
             counts[static_cast<std::size_t>(rank)], total);
}

}  // namespace

RowSharing::RowSharing(comm::Communicator& ranks) {
  if (ranks.size() == 1) return;
  ranks_ = &ranks;
  seconds_ = std::make_shared<double>(0.0);
}

void OwnRows::clear_rest(const at::Tensor& buffer) const {
  if (count < room) buffer.narrow(0, count, room - count).zero_();
}

OwnRows RowSharing::rows_of(std::int64_t rows, int rank) const {
  const std::int64_t room = Share{rank, ranks()}.room(rows), first = std::min(room * rank, rows);
  return {first, std::min(room, rows - first), room};
}

void RowSharing::all_gather(const at::Tensor& own, const at::Tensor& all) const {
  const std::vector<std::int64_t> counts(static_cast<std::size_t>(ranks()), own.size(0));
  all_gather(own, counts, all);
}

void RowSharing::reduce_scatter(const at::Tensor& all, std::int64_t rows, const at::Tensor& own) const {
  QFT_ASSERT(rows <= all.size(0), "{} rows in a buffer of {}", rows, all.size(0));
  all.narrow(0, rows, all.size(0) - rows).zero_();
  const std::vector<std::int64_t> counts(static_cast<std::size_t>(ranks()), own.size(0));
  reduce_scatter(all, counts, own);
}

std::vector<std::int64_t> RowSharing::counts_of(std::span<const std::int32_t> numbers, std::int64_t rows) const {
  std::vector<std::int64_t> counts;
  auto from = numbers.begin();
  for (int r = 0; r < ranks(); ++r) {
    const auto to = std::lower_bound(from, numbers.end(), rows_of(rows, r).end());
    counts.push_back(to - from);
    from = to;
  }
  QFT_ASSERT(from == numbers.end(), "row {} of {}", *from, rows);
  return counts;
}

void RowSharing::all_gather(const at::Tensor& own, std::span<const std::int64_t> counts, const at::Tensor& all) const {
  check(own, all, counts, rank());
  if (alone()) {
    if (!own.is_same(all)) all.copy_(own);
    return;
  }
  const Stopwatch watch(*seconds_);
  ranks_->all_gather_v(own.const_data_ptr(), all.data_ptr(), elements(counts, width_of(all)),
                       device::dtype_of(all.scalar_type()));
}

void RowSharing::reduce_scatter(const at::Tensor& all, std::span<const std::int64_t> counts, const at::Tensor& own) const {
  check(own, all, counts, rank());
  if (alone()) {
    if (!own.is_same(all)) own.copy_(all);
    return;
  }
  const Stopwatch watch(*seconds_);
  ranks_->reduce_scatter_v(all.const_data_ptr(), own.data_ptr(), elements(counts, width_of(all)),
                           device::dtype_of(all.scalar_type()));
}

void RowSharing::all_to_all(const at::Tensor& from, std::span<const std::int64_t> from_counts, const at::Tensor& to,
                            std::span<const std::int64_t> to_counts) const {
  QFT_ASSERT(!alone() && from.is_contiguous() && to.is_contiguous() && from.scalar_type() == to.scalar_type(),
             "{} and {} numbers are exchanged among {} ranks", from.numel(), to.numel(), ranks());
  const Stopwatch watch(*seconds_);
  ranks_->all_to_all_v(from.const_data_ptr(), elements(from_counts, 1), to.data_ptr(), elements(to_counts, 1),
                       device::dtype_of(to.scalar_type()));
}

void RowSharing::sum(const at::Tensor& values) const {
  reduce(values, comm::ReduceOp::sum);
}

void RowSharing::max(const at::Tensor& values) const {
  reduce(values, comm::ReduceOp::max);
}

void RowSharing::reduce(const at::Tensor& values, comm::ReduceOp op) const {
  if (alone() || values.numel() == 0) return;
  QFT_ASSERT(values.is_contiguous(), "values of {} dimensions that are summed over ranks have gaps", values.dim());
  const Stopwatch watch(*seconds_);
  comm::Communicator& group = values.is_cpu() ? ranks_->host() : *ranks_;  // offloaded gradients lie in host memory
  group.all_reduce(values.data_ptr(), static_cast<std::size_t>(values.numel()), device::dtype_of(values.scalar_type()), op);
}

}  // namespace qft::model
