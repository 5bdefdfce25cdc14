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
  /// "[0:4, 8:16]"
  std::string describe() const;

  auto operator<=>(const Box&) const = default;
};

/// True where no element is in both. They are of one tensor.
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

/// Calls body for everything that two ranges of one tensor have in common, in the order of `a`, in runs as long as the boxes allow.
void for_each_common_run(const BoxRange& a, const BoxRange& b, const std::function<void(const CommonRun&)>& body);

}  // namespace qft
