// How the tensor ranks share a model's matrices: each computes with some heads, some inner columns and some rows of the
// vocabulary.
#pragma once

#include <cstdint>

namespace qft::model {

/// This rank among the tensor ranks.
struct Share {
  int rank = 0, ranks = 1;
};

/// The elements [begin, begin + count) of a dimension.
struct Extent {
  std::int64_t begin = 0, count = 0;
  std::int64_t end() const { return begin + count; }
  bool operator==(const Extent&) const = default;
};

}  // namespace qft::model
