// Which parameters of a unit the optimizer updates, and which count in the norm.
#pragma once

#include "qft/model/spec.h"
#include "qft/optim/optimizer.h"
#include "qft/parallel/ranges.h"

#include <cstdint>

namespace qft::parallel {

/// Returns the ranges that this rank adds to the norm (ParamSpec::first_holder) among elements [begin, begin + length) of the
/// unit's trainable buffer, relative to `begin`. Padding, which is zero, counts with the parameter before it.
Ranges ranges_in_norm(const model::UnitSpec& unit, std::int64_t begin, std::int64_t length);

/// Returns elements [begin, begin + weights.numel()) of the unit's trainable buffer, with a segment for each parameter of the
/// unit.
optim::FlatParams owned_params(const model::UnitSpec& unit, const at::Tensor& weights, const at::Tensor& grads,
                               std::int64_t begin);

}  // namespace qft::parallel
