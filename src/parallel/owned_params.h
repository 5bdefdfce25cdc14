// What the optimizer is given of a unit.
#pragma once

#include "qft/model/spec.h"
#include "qft/optim/optimizer.h"

namespace qft::parallel {

/// Elements [begin, begin + weights.numel()) of the unit's trainable buffer, in segments of equal
/// hyper-parameters. Gaps between parameters belong to the segment before; padding behind the last one to none.
optim::FlatParams owned_params(const model::UnitSpec& unit, const at::Tensor& weights, const at::Tensor& grads,
                               std::int64_t begin);

}  // namespace qft::parallel
