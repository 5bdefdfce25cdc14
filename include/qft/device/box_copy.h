// Copies between a tensor and the boxes of it that lie one after the other in a flat buffer, on one device.
#pragma once

#include "qft/core/box.h"

#include <vector>

#include <ATen/core/Tensor.h>

namespace qft::device {

/// Returns the boxes' elements as a view of `whole` if they are adjacent there, otherwise an undefined tensor.
at::Tensor adjacent(const at::Tensor& whole, const std::vector<Box>& boxes);

/// Copy between a tensor and its boxes' elements in `flat`, one box after the other.
void from_boxes(const at::Tensor& flat, const std::vector<Box>& boxes, const at::Tensor& whole);
void to_boxes(const at::Tensor& whole, const std::vector<Box>& boxes, const at::Tensor& flat);

}  // namespace qft::device
