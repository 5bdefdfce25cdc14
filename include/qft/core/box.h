// Rectangular parts of tensors, and what two of them have in common: by this any layout reads what any other wrote.
#pragma once

#include <compare>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace qft {

using Shape = std::vector<std::int64_t>;

/// A rectangular part of a tensor: where it starts and how far it reaches along each dimension.
struct Box {
  Shape start, extent;

  static Box whole(const Shape& shape);
  /// Product of the extents, 1 for a scalar. Throws Error where an extent is negative or the product is beyond 64 bits.
  std::uint64_t elements() const;
  /// Whether it lies within a tensor of this shape.
  bool inside(const Shape& shape) const;
  /// "[4, 8] from [0, 8] on"
  std::string describe() const;

  auto operator<=>(const Box&) const = default;
};

/// True where no element is in both. They lie inside one tensor.
bool disjoint(const Box& a, const Box& b);

/// Elements [begin, end) of a box that is flattened in row-major order.
struct BoxRange {
  Box box;
  std::uint64_t begin = 0, end = 0;
};

/// `count` elements that follow each other in both of two ranges: from element `a` of the first and from `b` of the second on,
/// counted from the begin of each range.
struct CommonRun {
  std::uint64_t a = 0, b = 0, count = 0;
};

/// Calls body for everything that two ranges of one tensor have in common, in ascending order, in runs as long as the boxes
/// allow. The boxes lie inside the tensor. What lies before both ranges costs no time.
void for_each_common_run(const BoxRange& a, const BoxRange& b, const std::function<void(const CommonRun&)>& body);

}  // namespace qft
