// What a micro-batch in flight takes of memory.
#pragma once

#include "qft/model/spec.h"

#include <cstdint>

#include <c10/core/ScalarType.h>

namespace qft::parallel {

/// Bytes that a micro-batch of `tokens` holds from its forward to its backward pass (what Executor's arenas grow by):
/// per layer, from the lowest trained block on, its input and, without recomputation, what model::LayerSaved lists. With
/// recomputation and `offloaded`, two layers' inputs at a time.
std::int64_t activation_bytes(const model::ModelSpec& spec, at::ScalarType compute, std::int64_t tokens, bool recompute,
                              bool offloaded = false);

/// Bytes of a micro-batch that only runs forward: two boundaries, and the angles of sequences that are as long as it is, where
/// these have their own.
std::int64_t forward_bytes(const model::ModelSpec& spec, at::ScalarType compute, std::int64_t tokens);

/// Bytes of one boundary between blocks; and of the layer that is computed again, or only forward, with its output.
std::int64_t boundary_bytes(const model::ModelSpec& spec, at::ScalarType compute, std::int64_t tokens);
std::int64_t recomputed_layer_bytes(const model::ModelSpec& spec, at::ScalarType compute, std::int64_t tokens);

}  // namespace qft::parallel
