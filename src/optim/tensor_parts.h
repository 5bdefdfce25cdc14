// The boxes of a tensor that each tensor rank holds. Private to optim.
#pragma once

#include "qft/core/box.h"

#include <cstdint>
#include <vector>

namespace qft::comm {
class Communicator;
}

namespace qft::optim {

/// A tensor rank's elements of a parameter.
struct TensorPart {
  std::int64_t begin = 0, end = 0;  ///< range in the unit's buffer
  std::vector<Box> boxes;           ///< lie one after the other in the range
  bool first = true;                ///< no earlier tensor rank holds the same boxes

  std::int64_t numel() const { return end - begin; }
};

/// Returns the parts that each tensor rank has of each parameter: [parameter][tensor rank]. `mine`: this rank's; `shapes`: of the
/// whole tensors, the same on all ranks. `ranks`: in its order, tensor ranks are neighbours. Throws Error if a tensor's boxes
/// leave out elements or overlap without being equal. Collective.
std::vector<std::vector<TensorPart>> parts_of_all(const std::vector<TensorPart>& mine, const std::vector<Shape>& shapes,
                                                  comm::Communicator& ranks, int tensor_ranks);

}  // namespace qft::optim
