#include "owners.h"

#include "qft/comm/communicator.h"
#include "qft/device/scalar_type.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include <ATen/ops/empty.h>

namespace qft::optim {
namespace {

/// Parameters per rank in a round: more would need more memory, fewer would leave ranks idle.
constexpr std::size_t kEach = 2;

std::size_t total(const std::vector<std::size_t>& counts) {
  return std::accumulate(counts.begin(), counts.end(), std::size_t{0});
}

}  // namespace

Owners::Owners(std::vector<Owned> all, Slices slices) : all_(std::move(all)), slices_(std::move(slices)) {
  const std::size_t ranks = slices_.shared() ? static_cast<std::size_t>(slices_.comm->size()) : 1;
  for (std::size_t first = 0; first < all_.size(); first += kEach * ranks) rounds_.push_back(first);
  rounds_.push_back(all_.size());
  if (slices_.shared()) assign_owners();
}

/// Assigns owners in each round: the largest parameter first, to the rank with the smallest load so far.
void Owners::assign_owners() {
  std::vector<std::int64_t> load(static_cast<std::size_t>(slices_.comm->size()), 0);
  for (std::size_t round = 0; round + 1 < rounds_.size(); ++round) {
    std::vector<std::size_t> order(rounds_[round + 1] - rounds_[round]);
    std::iota(order.begin(), order.end(), rounds_[round]);
    const auto numel = [&](std::size_t i) { return all_[i].end - all_[i].begin; };
    std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return numel(a) > numel(b); });
    for (const std::size_t i : order) {
      const auto least = std::min_element(load.begin(), load.end());
      all_[i].owner = static_cast<int>(least - load.begin());
      *least += numel(i);
    }
  }
}

bool Owners::is_mine(const Owned& owned) const {
  return !slices_.shared() || owned.owner == slices_.comm->rank();
}

std::int64_t Owners::length_on(int rank, const Owned& owned) const {
  const std::int64_t chunk = slices_.chunks[owned.buffer], begin = chunk * rank;
  return std::max<std::int64_t>(0, std::min(owned.end, begin + chunk) - std::max(owned.begin, begin));
}

void Owners::update_owned(const Part& part, const Body& body) {
  if (slices_.shared()) {
    for (std::size_t round = 0; round + 1 < rounds_.size(); ++round) exchange(rounds_[round], rounds_[round + 1], part, body);
  } else {
    for (const Owned& owned : all_) body(owned, part(owned).view(owned.stack));
  }
}

void Owners::exchange(std::size_t first, std::size_t last, const Part& part, const Body& body) {
  comm::Communicator& comm = *slices_.comm;
  const auto ranks = static_cast<std::size_t>(comm.size());
  std::vector<std::size_t> out(ranks, 0), in(ranks, 0);
  for (std::size_t i = first; i < last; ++i) {
    out[static_cast<std::size_t>(all_[i].owner)] += static_cast<std::size_t>(length_on(comm.rank(), all_[i]));
    if (!is_mine(all_[i])) continue;
    for (std::size_t r = 0; r < ranks; ++r) in[r] += static_cast<std::size_t>(length_on(static_cast<int>(r), all_[i]));
  }
  const at::TensorOptions options = part(all_[first]).options();
  const at::Tensor sent = at::empty({static_cast<std::int64_t>(total(out))}, options);
  const at::Tensor received = at::empty({static_cast<std::int64_t>(total(in))}, options);
  const DType type = device::dtype_of(sent.scalar_type());

  // Calls use(owned, this rank's part of it in `sent`), in the order of the owners.
  const auto for_sent = [&](const auto& use) {
    std::int64_t at = 0;
    for (int r = 0; r < comm.size(); ++r)
      for (std::size_t i = first; i < last; ++i) {
        if (all_[i].owner != r) continue;
        const std::int64_t length = length_on(comm.rank(), all_[i]);
        use(all_[i], sent.narrow(0, at, length));
        at += length;
      }
  };
  for_sent([&](const Owned& owned, const at::Tensor& place) { place.copy_(part(owned)); });
  comm.all_to_all_v(sent.data_ptr(), out, received.data_ptr(), in, type);

  std::vector<std::int64_t> next(ranks, 0);  // position in `received` of each rank's next part
  std::exclusive_scan(in.begin(), in.end(), next.begin(), std::int64_t{0});
  for (std::size_t i = first; i < last; ++i) {
    const Owned& owned = all_[i];
    if (!is_mine(owned)) continue;
    const at::Tensor whole = at::empty({owned.end - owned.begin}, options);
    const auto for_parts = [&](const auto& use) {
      std::int64_t at = 0;
      for (std::size_t r = 0; r < ranks; ++r) {
        const std::int64_t length = length_on(static_cast<int>(r), owned);
        use(whole.narrow(0, at, length), received.narrow(0, next[r], length));
        at += length;
      }
    };
    for_parts([](const at::Tensor& here, const at::Tensor& there) { here.copy_(there); });
    body(owned, whole.view(owned.stack));
    for_parts([](const at::Tensor& here, const at::Tensor& there) { there.copy_(here); });
    for (std::size_t r = 0; r < ranks; ++r) next[r] += length_on(static_cast<int>(r), owned);
  }
  comm.all_to_all_v(received.data_ptr(), in, sent.data_ptr(), out, type);
  for_sent([&](const Owned& owned, const at::Tensor& place) { part(owned).copy_(place); });
}

}  // namespace qft::optim
