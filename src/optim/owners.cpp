#include "owners.h"

#include "qft/comm/communicator.h"
#include "qft/device/box_copy.h"
#include "qft/device/scalar_type.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include <ATen/ops/empty.h>

namespace qft::optim {
namespace {

/// Parameters per rank in a round: more would need more memory, fewer would leave ranks idle.
constexpr std::int64_t kEach = 2;

at::Tensor buffer_for(const std::vector<std::size_t>& counts, const at::TensorOptions& options) {
  return at::empty({static_cast<std::int64_t>(std::accumulate(counts.begin(), counts.end(), std::size_t{0}))}, options);
}

/// Returns the index of each rank's first element.
std::vector<std::int64_t> starts(const std::vector<std::size_t>& counts) {
  std::vector<std::int64_t> at(counts.size());
  std::exclusive_scan(counts.begin(), counts.end(), at.begin(), std::int64_t{0});
  return at;
}

}  // namespace

std::int64_t Owned::numel() const {
  return stack[0] * stack[1] * stack[2];
}

Owners::Owners(std::vector<Owned> all, Slices slices) : all_(std::move(all)), slices_(std::move(slices)) {
  if (!slices_.shared()) return;
  if (slices_.tensor_ranks > 1) find_parts();
  make_rounds();
  assign_owners();
}

void Owners::find_parts() {
  std::vector<TensorPart> mine;
  std::vector<Shape> shapes;
  for (const Owned& owned : all_) {
    mine.push_back(owned.parts.front());
    shapes.push_back(owned.shape);
  }
  auto parts = parts_of_all(mine, shapes, slices_.comm->host(), slices_.tensor_ranks);
  for (std::size_t i = 0; i < all_.size(); ++i) all_[i].parts = std::move(parts[i]);
}

/// A parameter counts once for each copy of it that the tensor ranks hold, because each copy is sent back.
void Owners::make_rounds() {
  const std::int64_t most = kEach * ranks();
  std::int64_t copies = most;  // in this round
  for (std::size_t i = 0; i < all_.size(); ++i) {
    std::int64_t elements = 0;
    for (const TensorPart& part : all_[i].parts) elements += part.numel();
    const std::int64_t here = std::max<std::int64_t>(1, elements / std::max<std::int64_t>(1, all_[i].numel()));
    if (copies + here > most) {
      rounds_.push_back(i);
      copies = 0;
    }
    copies += here;
  }
  rounds_.push_back(all_.size());
}

int Owners::ranks() const {
  return slices_.shared() ? slices_.comm->size() : 1;
}

/// Assigns owners in each round: the largest parameter first, to the rank with the smallest load so far.
void Owners::assign_owners() {
  std::vector<std::int64_t> load(static_cast<std::size_t>(ranks()), 0);
  for (std::size_t round = 0; round + 1 < rounds_.size(); ++round) {
    std::vector<std::size_t> order(rounds_[round + 1] - rounds_[round]);
    std::iota(order.begin(), order.end(), rounds_[round]);
    std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return all_[a].numel() > all_[b].numel(); });
    for (const std::size_t i : order) {
      const auto least = std::min_element(load.begin(), load.end());
      all_[i].owner = static_cast<int>(least - load.begin());
      *least += all_[i].numel();
    }
  }
}

bool Owners::is_mine(const Owned& owned) const {
  return !slices_.shared() || owned.owner == slices_.comm->rank();
}

std::int64_t Owners::length_on(int rank, const Owned& owned, Way way) const {
  const TensorPart& part = owned.parts[static_cast<std::size_t>(rank % slices_.tensor_ranks)];
  if (way == Way::to_owners && !part.first) return 0;
  const std::int64_t chunk = slices_.chunks[owned.buffer], begin = chunk * (rank / slices_.tensor_ranks);
  return std::max<std::int64_t>(0, std::min(part.end, begin + chunk) - std::max(part.begin, begin));
}

Owners::Counts Owners::counts(std::size_t round, Way way) const {
  const auto ranks = static_cast<std::size_t>(this->ranks());
  Counts n{std::vector<std::size_t>(ranks, 0), std::vector<std::size_t>(ranks, 0)};
  for (std::size_t i = rounds_[round]; i < rounds_[round + 1]; ++i) {
    const Owned& owned = all_[i];
    n.mine[static_cast<std::size_t>(owned.owner)] += static_cast<std::size_t>(length_on(slices_.comm->rank(), owned, way));
    if (!is_mine(owned)) continue;
    for (std::size_t r = 0; r < ranks; ++r) n.theirs[r] += static_cast<std::size_t>(length_on(static_cast<int>(r), owned, way));
  }
  return n;
}

template <class Use>
void Owners::for_my_parts(std::size_t round, Way way, const at::Tensor& buffer, const Use& use) const {
  std::int64_t at = 0;
  for (int r = 0; r < ranks(); ++r)
    for (std::size_t i = rounds_[round]; i < rounds_[round + 1]; ++i) {
      if (all_[i].owner != r) continue;
      const std::int64_t length = length_on(slices_.comm->rank(), all_[i], way);
      if (length > 0) use(all_[i], buffer.narrow(0, at, length));
      at += length;
    }
}

void Owners::update_owned(const Part& part, const Body& body) {
  if (slices_.shared()) {
    for (std::size_t round = 0; round + 1 < rounds_.size(); ++round) exchange(round, part, body);
  } else {
    for (const Owned& owned : all_) body(owned, part(owned).view(owned.stack));
  }
}

void Owners::exchange(std::size_t round, const Part& part, const Body& body) {
  const at::TensorOptions options = part(all_[rounds_[round]]).options();
  const DType type = device::dtype_of(c10::typeMetaToScalarType(options.dtype()));
  const Counts there = counts(round, Way::to_owners), back = counts(round, Way::back);
  const at::Tensor sent = buffer_for(there.mine, options), received = buffer_for(there.theirs, options);
  // Of tensor ranks with the same boxes, only the first sends gradients, but all receive results.
  const at::Tensor answers = back.theirs == there.theirs ? received : buffer_for(back.theirs, options);
  const at::Tensor results = back.mine == there.mine ? sent : buffer_for(back.mine, options);

  for_my_parts(round, Way::to_owners, sent, [&](const Owned& owned, const at::Tensor& place) { place.copy_(part(owned)); });
  slices_.comm->all_to_all_v(sent.data_ptr(), there.mine, received.data_ptr(), there.theirs, type);
  update(round, received, there, answers, back, body);
  slices_.comm->all_to_all_v(answers.data_ptr(), back.theirs, results.data_ptr(), back.mine, type);
  for_my_parts(round, Way::back, results, [&](const Owned& owned, const at::Tensor& place) { part(owned).copy_(place); });
}

void Owners::update(std::size_t round, const at::Tensor& received, const Counts& there, const at::Tensor& answers,
                    const Counts& back, const Body& body) const {
  std::vector<std::int64_t> next = starts(there.theirs), answer = starts(back.theirs);
  // Calls use(elements of tensor rank t's part, their place in `buffer`) slice by slice.
  const auto for_slices = [&](const Owned& owned, int t, Way way, const at::Tensor& flat, const at::Tensor& buffer,
                              std::vector<std::int64_t>& at, const auto& use) {
    std::int64_t done = 0;
    for (int r = t; r < ranks(); r += slices_.tensor_ranks) {
      const std::int64_t length = length_on(r, owned, way);
      use(flat.narrow(0, done, length), buffer.narrow(0, at[static_cast<std::size_t>(r)], length));
      at[static_cast<std::size_t>(r)] += length;
      done += length;
    }
  };
  for (std::size_t i = rounds_[round]; i < rounds_[round + 1]; ++i) {
    const Owned& owned = all_[i];
    if (!is_mine(owned)) continue;
    const at::Tensor whole = at::empty(owned.shape, received.options());
    for (int t = 0; t < slices_.tensor_ranks; ++t) {
      const TensorPart& part = owned.parts[static_cast<std::size_t>(t)];
      if (!part.first) continue;
      const at::Tensor view = device::adjacent(whole, part.boxes),
                       flat = view.defined() ? view : at::empty({part.numel()}, whole.options());
      for_slices(owned, t, Way::to_owners, flat, received, next,
                 [](const at::Tensor& here, const at::Tensor& there) { here.copy_(there); });
      if (!view.defined()) device::from_boxes(flat, part.boxes, whole);
    }
    body(owned, whole.view(owned.stack));
    for (int t = 0; t < slices_.tensor_ranks; ++t) {
      const TensorPart& part = owned.parts[static_cast<std::size_t>(t)];
      const at::Tensor view = device::adjacent(whole, part.boxes),
                       flat = view.defined() ? view : at::empty({part.numel()}, whole.options());
      if (!view.defined()) device::to_boxes(whole, part.boxes, flat);
      for_slices(owned, t, Way::back, flat, answers, answer,
                 [](const at::Tensor& here, const at::Tensor& there) { there.copy_(here); });
    }
  }
}

}  // namespace qft::optim
