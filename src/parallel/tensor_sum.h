// Adds up gradients over tensor ranks, for parameters of which each rank has a term of the gradient. Private to parallel.
#pragma once

#include "qft/model/row_sharing.h"
#include "qft/model/spec.h"

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

namespace qft::parallel {

/// Elements [begin, begin + values.numel()) of a unit's trainable buffer; undefined values: nothing trains here.
struct OwnedGrads {
  at::Tensor values;
  std::int64_t begin = 0;
};

/// Replaces the gradients that are GradPlacement::partial along the tensor axis by their sums over the ranks of `tensor`, with
/// the same bits on all. `owned`: by unit, the same elements on all ranks, after they have been summed over all other ranks.
/// Collective.
void add_up_terms(const model::ModelSpec& spec, const std::vector<OwnedGrads>& owned, const model::RowSharing& tensor);

}  // namespace qft::parallel
