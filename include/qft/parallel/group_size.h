// How many micro-batches can be in flight at once.
#pragma once

#include <cstdint>

#include <c10/core/ScalarType.h>

#include "qft/model/spec.h"
#include "qft/optim/precision.h"

namespace qft::parallel {

/// Bytes that a micro-batch of `tokens` holds from its forward to its backward pass (what Executor's arenas grow by):
/// per layer its input and, without recomputation, what model::LayerSaved lists.
/// With recomputation and `offloaded` inputs two of them at a time.
std::int64_t activation_bytes(const model::ModelSpec& spec, at::ScalarType compute, std::int64_t tokens, bool recompute,
                              bool offloaded = false);

/// Of one boundary between blocks; and of the layer that is computed again, or only forward, with its output.
std::int64_t boundary_bytes(const model::ModelSpec& spec, at::ScalarType compute, std::int64_t tokens);
std::int64_t recomputed_layer_bytes(const model::ModelSpec& spec, at::ScalarType compute, std::int64_t tokens);

/// How many micro-batches' compiled CPU products a group of micro-batches in flight needs at once (device::kernel_cache_bytes):
/// each number of tokens has its own, but where the same ones serve all.
std::int64_t kernel_sets(const model::ModelSpec& spec, const optim::Precision& precision, std::int64_t group);

/// The largest group of micro-batches of `each` bytes for which `available` bytes suffice, of which `reserved` will be
/// taken by other things and a fifth stays free; at least 1.
std::int64_t largest_group(std::int64_t available, std::int64_t reserved, std::int64_t each);

}  // namespace qft::parallel
