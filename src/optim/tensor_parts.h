// The boxes of a tensor that each tensor rank holds. Private to optim.
#pragma once

#include "qft/core/box.h"

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

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

/// Returns the boxes' elements as a view of `whole` if they are adjacent there, otherwise an undefined tensor.
at::Tensor adjacent(const at::Tensor& whole, const std::vector<Box>& boxes);

/// Copy between a tensor and its boxes' elements in `flat`, one box after the other.
void from_boxes(const at::Tensor& flat, const std::vector<Box>& boxes, const at::Tensor& whole);
void to_boxes(const at::Tensor& whole, const std::vector<Box>& boxes, const at::Tensor& flat);

}  // namespace qft::optim
