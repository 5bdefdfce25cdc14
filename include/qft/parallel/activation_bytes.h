// Memory of a micro-batch in flight.
#pragma once

#include "qft/model/spec.h"

#include <cstdint>

#include <c10/core/ScalarType.h>

namespace qft::parallel {

/// Returns the bytes that a micro-batch of `tokens` tokens holds from its forward to its backward pass (the growth of Executor's
/// arenas). For each layer from the lowest trained block on: the layer's input and, without recomputation, the tensors that
/// model::LayerSaved lists. With recomputation and `offloaded`: only two layer inputs at a time.
std::int64_t activation_bytes(const model::ModelSpec& spec, at::ScalarType compute, std::int64_t tokens, bool recompute,
                              bool offloaded = false);

/// Returns the bytes of a forward-only micro-batch: two block boundaries, plus the rotary angles of one sequence with all tokens
/// if its angles depend on its length.
/// `all_rows`: each rank has all rows, as in decoding, instead of its own.
std::int64_t forward_bytes(const model::ModelSpec& spec, at::ScalarType compute, std::int64_t tokens, bool all_rows = false);

/// Bytes of one block boundary, this rank's rows [rows, hidden] in `compute`; and of the largest layer's saved tensors and
/// output, for a layer that is recomputed or runs forward only.
std::int64_t boundary_bytes(const model::ModelSpec& spec, at::ScalarType compute, std::int64_t tokens, bool all_rows = false);
std::int64_t recomputed_layer_bytes(const model::ModelSpec& spec, at::ScalarType compute, std::int64_t tokens,
                                    bool all_rows = false);

}  // namespace qft::parallel
