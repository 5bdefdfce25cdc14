// How many micro-batches can be in flight at once.
#pragma once

#include <cstdint>

#include <c10/core/ScalarType.h>

#include "qft/model/spec.h"

namespace qft::parallel {

/// Bytes that a micro-batch of `tokens` holds from its forward to its backward pass (what Executor's arenas grow by):
/// per layer its input and, without recomputation, what model::LayerSaved lists.
std::int64_t activation_bytes(const model::ModelSpec& spec, at::ScalarType compute, std::int64_t tokens, bool recompute);

/// The largest group of micro-batches of `each` bytes for which `available` bytes suffice, of which `reserved` will be
/// taken by other things and a fifth stays free; at least 1.
std::int64_t largest_group(std::int64_t available, std::int64_t reserved, std::int64_t each);

}  // namespace qft::parallel
