#include "place.h"

#include "qft/core/error.h"

#include <algorithm>
#include <array>
#include <utility>

namespace qft::model {
namespace {

std::int64_t& end_of(UnitSpec& unit, Part part) {
  return part == Part::quantized ? unit.quantized_numel : part == Part::trainable ? unit.trainable_numel : unit.frozen_numel;
}

std::int64_t product(const Shape& shape) {
  return static_cast<std::int64_t>(Box::whole(shape).elements());
}

/// Returns where the unit's parameters of a part would end if one rank held the whole tensors.
std::int64_t whole_end(const UnitSpec& unit, Part part) {
  const auto last = std::find_if(unit.params.rbegin(), unit.params.rend(), [&](const ParamSpec& p) { return p.part() == part; });
  return last == unit.params.rend() ? 0 : last->whole_offset + product(last->shape);
}

}  // namespace

std::int64_t aligned(std::int64_t elements) {
  return (elements + kFlatAlignment - 1) / kFlatAlignment * kFlatAlignment;
}

void set_boxes(ParamSpec& param, Shape shape, std::size_t d, const Cut& cut, Share share) {
  QFT_ASSERT(shape.at(d) == cut.whole, "dimension {} of '{}' has {} elements, not {}", d, param.name, shape[d], cut.whole);
  const Box whole = Box::whole(shape);
  param.boxes.clear();
  for (const Extent& piece : cut.pieces) {
    Box& box = param.boxes.emplace_back(whole);
    box.start[d] = piece.begin;
    box.extent[d] = piece.count;
  }
  param.local_shape = param.largest_shape = shape;
  param.local_shape[d] = cut.count();
  param.largest_shape[d] = cut.largest;
  param.numel = product(param.local_shape);
  param.shape = std::move(shape);
  const int holders = cut.is_cut() ? cut.holders : share.ranks;
  const bool own = holders == 1;
  param.gradient[static_cast<std::size_t>(comm::Axis::tensor)] = own ? GradPlacement::sharded : GradPlacement::partial;
  param.slots = own ? 1 : share.ranks / holders;
  param.slot = own ? 0 : share.rank / holders;
  param.first_holder = share.rank % holders == 0;
}

void set_whole(ParamSpec& param, Shape shape, Share share) {
  const Cut all = Cut::none(shape.front());
  set_boxes(param, std::move(shape), 0, all, share);
}

void place(UnitSpec& unit, std::vector<ParamSpec> group) {
  if (group.empty()) return;
  std::int64_t& first = end_of(unit, group.front().part());
  first = aligned(first);
  for (const ParamSpec& p : group) end_of(unit, p.part()) += product(p.largest_shape) - p.numel;
  for (ParamSpec& p : group) {
    p.whole_offset = whole_end(unit, p.part());
    if (&p == &group.front()) p.whole_offset = aligned(p.whole_offset);
    p.offset = std::exchange(end_of(unit, p.part()), end_of(unit, p.part()) + p.numel);
    p.packed_offset = std::exchange(unit.packed_bytes, unit.packed_bytes + p.packed_bytes());
    p.derived_offset = std::exchange(unit.derived_numel, unit.derived_numel + p.derived_numel);
    unit.params.push_back(std::move(p));
  }
}

}  // namespace qft::model
