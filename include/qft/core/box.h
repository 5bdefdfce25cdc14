// Boxes of tensors and their intersections: with these, every layout can read data that another layout wrote.
#pragma once

#include <compare>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

namespace qft {

using Shape = std::vector<std::int64_t>;

/// A rectangle of a tensor: its start and its extent along each dimension.
struct Box {
  Shape start, extent;

  static Box whole(const Shape& shape);
  /// Returns the product of the extents, 1 for a scalar. Throws Error if an extent is negative or the product exceeds 64 bits.
  std::uint64_t elements() const;
  /// True if the box lies within a tensor of this shape.
  bool inside(const Shape& shape) const;
  /// Returns for example "[4, 8] from [0, 8] on": extents, then starts.
  std::string describe() const;

  auto operator<=>(const Box&) const = default;
};

/// True if no element is in both boxes. Both must lie inside one tensor.
bool disjoint(const Box& a, const Box& b);

/// The elements [begin, end) of a box flattened in row-major order.
struct BoxRange {
  Box box;
  std::uint64_t begin = 0, end = 0;
};

/// `count` elements that are consecutive in both of two ranges: they begin at element `a` of the first range and at element `b`
/// of the second, counted from each range's begin.
struct CommonRun {
  std::uint64_t a = 0, b = 0, count = 0;
};

/// Calls `body` for the elements that two ranges of one tensor share, in ascending order, in runs as long as the boxes allow.
/// The boxes must lie inside the tensor. Elements before both ranges cost no time.
void for_each_common_run(const BoxRange& a, const BoxRange& b, const std::function<void(const CommonRun&)>& body);

/// Returns the number of elements of all boxes together.
std::uint64_t elements(std::span<const Box> boxes);

/// The elements [begin, end) of boxes that lie one after the other, each flattened in row-major order. Does not own the boxes.
struct BoxesRange {
  std::span<const Box> boxes;
  std::uint64_t begin = 0, end = 0;
};

/// The part of a BoxesRange that lies in one box. Its first element is element `begin` of the range.
struct BoxPart {
  BoxRange range;
  std::uint64_t begin = 0;
};
/// Returns the parts of a range, in order, without empty ones.
std::vector<BoxPart> parts_of(const BoxesRange& range);

/// Does the same for a range `a` of several boxes, in ascending order in `a`.
void for_each_common_run(const BoxesRange& a, const BoxRange& b, const std::function<void(const CommonRun&)>& body);

/// Returns the index in the whole tensor, flattened in row-major order, of element `i` of boxes that lie one after the other.
/// Throws Error if the boxes have fewer elements.
std::uint64_t index_in_whole(std::span<const Box> boxes, const Shape& shape, std::uint64_t i);

}  // namespace qft
