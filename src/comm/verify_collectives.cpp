#include "qft/comm/bandwidth.h"
#include "qft/device/scalar_type.h"
#include "qft/device/stream.h"

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <fmt/format.h>

namespace qft::comm {

namespace {

using Counts = std::vector<std::size_t>;

/// Value behind the end of each buffer, which nothing may overwrite.
constexpr double kGuard = 77;

class Trial {
 public:
  Trial(Communicator& comm, c10::Device device, const CollectiveTrial& what)
      : comm_(comm),
        device_(device),
        what_(what),
        options_(at::TensorOptions().dtype(device::scalar_type_of(what.dtype)).device(device)),
        ranks_(static_cast<std::size_t>(comm.size())),
        rank_(static_cast<std::size_t>(comm.rank())) {
    for (std::size_t r = 0; r < ranks_; ++r) counts_.push_back(!what.uneven ? what.count : r % 3 == 1 ? 0 : what.count + r % 5);
  }

  std::vector<std::string> run() {
    all_reduce();
    broadcast();
    all_gather();
    reduce_scatter();
    all_to_all();
    if (ranks_ > 1) ring();
    return std::move(wrong_);
  }

 private:
  /// Rank r's elements [0, count), int64: small, so that sums are exact in every type. With many ranks some have 0 in an element,
  /// but never all of them.
  at::Tensor values(std::size_t r, std::size_t count) const {
    constexpr std::size_t kTerms = 40;
    const auto stride = static_cast<std::int64_t>((ranks_ + kTerms - 1) / kTerms), shift = static_cast<std::int64_t>(r);
    const at::Tensor i = at::arange(static_cast<std::int64_t>(count), at::kLong);
    return i.mul(7).add(3 * shift).remainder(3).add(1).mul(i.add(shift).remainder(stride).eq(0));
  }
  at::Tensor reduced(std::size_t count, ReduceOp op) const {
    at::Tensor result = values(0, count);
    for (std::size_t r = 1; r < ranks_; ++r) {
      const at::Tensor next = values(r, count);
      result = op == ReduceOp::sum ? result + next : op == ReduceOp::max ? result.maximum(next) : result.minimum(next);
    }
    return result;
  }
  at::Tensor to_device(const at::Tensor& host) const {
    const at::Tensor out = room(static_cast<std::size_t>(host.numel()));
    out.narrow(0, 0, host.numel()).copy_(host);
    return out;
  }
  at::Tensor room(std::size_t count) const { return at::full({static_cast<std::int64_t>(count) + 1}, kGuard, options_); }

  static std::size_t total(const Counts& counts) { return std::accumulate(counts.begin(), counts.end(), std::size_t{0}); }
  /// Returns the start of a rank's slice.
  static std::int64_t begin(const Counts& counts, std::size_t rank) {
    return static_cast<std::int64_t>(
        std::accumulate(counts.begin(), counts.begin() + static_cast<std::ptrdiff_t>(rank), std::size_t{0}));
  }

  void compare(const std::string& name, const at::Tensor& out, const at::Tensor& expected) {
    device::Stream::current(device_).synchronize();
    const at::Tensor all = out.to(c10::kCPU, at::kDouble), want = expected.to(at::kDouble);
    const at::Tensor got = all.narrow(0, 0, want.numel());
    const at::Tensor bad = got.ne(want).nonzero();
    if (bad.numel() > 0) {
      const auto i = bad[0].item<std::int64_t>();
      wrong_.push_back(fmt::format("{} gives {} instead of {} at element {} of {} ({} are wrong)", name, got[i].item<double>(),
                                   want[i].item<double>(), i, want.numel(), bad.numel()));
    } else if (all[want.numel()].item<double>() != kGuard) {
      wrong_.push_back(fmt::format("{} writes behind the end of {} elements", name, want.numel()));
    }
  }

  void all_reduce() {
    const std::size_t count = counts_[0];
    for (const ReduceOp op : {ReduceOp::sum, ReduceOp::max, ReduceOp::min}) {
      const at::Tensor data = to_device(values(rank_, count));
      comm_.start_all_reduce(data.data_ptr(), count, what_.dtype, op).wait_host();
      compare(fmt::format("all_reduce({})", name_of(op)), data, reduced(count, op));
    }
  }
  void broadcast() {
    for (const std::size_t root : {std::size_t{0}, ranks_ - 1}) {
      const at::Tensor data = to_device(values(rank_, what_.count));
      comm_.start_broadcast(data.data_ptr(), what_.count, what_.dtype, static_cast<int>(root)).wait_host();
      compare(fmt::format("broadcast from {}", root), data, values(root, what_.count));
    }
  }
  void all_gather() {
    const at::Tensor send = to_device(values(rank_, counts_[rank_])), recv = room(total(counts_));
    if (what_.uneven)
      comm_.start_all_gather_v(send.data_ptr(), recv.data_ptr(), counts_, what_.dtype).wait_host();
    else
      comm_.start_all_gather(send.data_ptr(), recv.data_ptr(), what_.count, what_.dtype).wait_host();
    const at::Tensor expected = at::arange(static_cast<std::int64_t>(total(counts_)), at::kLong);
    for (std::size_t r = 0; r < ranks_; ++r)
      expected.narrow(0, begin(counts_, r), static_cast<std::int64_t>(counts_[r])).copy_(values(r, counts_[r]));
    compare("all_gather", recv, expected);
  }
  void reduce_scatter() {
    const at::Tensor send = to_device(values(rank_, total(counts_))), recv = room(counts_[rank_]);
    if (what_.uneven)
      comm_.start_reduce_scatter_v(send.data_ptr(), recv.data_ptr(), counts_, what_.dtype).wait_host();
    else
      comm_.start_reduce_scatter(send.data_ptr(), recv.data_ptr(), what_.count, what_.dtype).wait_host();
    const auto mine = static_cast<std::int64_t>(counts_[rank_]);
    compare("reduce_scatter", recv, reduced(total(counts_), ReduceOp::sum).narrow(0, begin(counts_, rank_), mine));
  }
  /// Rank r sends `counts_[to]` elements to rank `to`.
  void all_to_all() {
    const Counts got(ranks_, counts_[rank_]);
    const at::Tensor send = to_device(values(rank_, total(counts_))), recv = room(total(got));
    comm_.start_all_to_all_v(send.data_ptr(), counts_, recv.data_ptr(), got, what_.dtype).wait_host();
    const auto mine = static_cast<std::int64_t>(counts_[rank_]);
    const at::Tensor expected = at::arange(static_cast<std::int64_t>(total(got)), at::kLong);
    for (std::size_t r = 0; r < ranks_; ++r)
      expected.narrow(0, begin(got, r), mine).copy_(values(r, total(counts_)).narrow(0, begin(counts_, rank_), mine));
    compare("all_to_all", recv, expected);
  }
  void ring() {
    const at::Tensor send = to_device(values(rank_, what_.count)), recv = room(what_.count);
    const std::size_t from = (rank_ + ranks_ - 1) % ranks_, to = (rank_ + 1) % ranks_;
    // NCCL matches messages by their order alone: even ranks send first.
    Work first, second;
    const auto start_send = [&] { return comm_.start_send(send.data_ptr(), what_.count, what_.dtype, static_cast<int>(to)); };
    const auto start_recv = [&] { return comm_.start_recv(recv.data_ptr(), what_.count, what_.dtype, static_cast<int>(from)); };
    first = rank_ % 2 == 0 ? start_send() : start_recv();
    first.wait_host();
    second = rank_ % 2 == 0 ? start_recv() : start_send();
    second.wait_host();
    compare("send and recv", recv, values(from, what_.count));
  }

  Communicator& comm_;
  c10::Device device_;
  CollectiveTrial what_;
  at::TensorOptions options_;
  std::size_t ranks_;
  std::size_t rank_;
  Counts counts_;  ///< elements of each rank's slice
  std::vector<std::string> wrong_;
};

}  // namespace

std::vector<std::string> verify_collectives(Communicator& comm, c10::Device device, const CollectiveTrial& trial) {
  return Trial(comm, device, trial).run();
}

}  // namespace qft::comm
