// The largest micro-batches of a run, computed from the lengths of its items before it starts.
#pragma once

#include "qft/core/batch_shape.h"
#include "qft/loader/item_choice.h"
#include "qft/loader/schedule.h"

#include <cstdint>
#include <span>

namespace qft::loader {

/// The largest micro-batches of a run.
struct BatchBounds {
  BatchShape shape;  ///< the largest of each size; `longest` is an item's tokens if items have several sequences
  std::int64_t max_micro_batches = 0;  ///< of a rank in a step; 0: unknown
  std::int64_t evaluation_tokens = 0;  ///< tokens of a micro-batch of evaluations during training; 0: there are none
};

/// Computes the bounds. tokens[i], labels[i]: the lengths from which the schedule was made. Plans all steps of runs with up to
/// two million units. Of longer runs it plans a sample of evenly spaced steps, and adds the longest item and the maximum number
/// of sequences in a micro-batch. `item_sequences`: sequences per item. `shared`: shared_prompts() of each item; empty: no shared
/// rows. `varying`: sizes of items with varying numbers of sequences; empty: every item has `item_sequences`.
BatchBounds batch_bounds(const StepSchedule& schedule, std::span<const std::int32_t> tokens, std::span<const std::int32_t> labels,
                         std::int64_t item_sequences = 1, std::span<const std::int32_t> shared = {},
                         const ItemSequences& varying = {});

}  // namespace qft::loader
