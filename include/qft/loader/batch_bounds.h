// The largest micro-batches of a run, computed from the lengths of its items before it starts.
#pragma once

#include "qft/loader/schedule.h"

#include <cstdint>
#include <span>

namespace qft::loader {

/// Maximum sizes; 0: unknown.
struct BatchBounds {
  std::int64_t tokens = 0, labels = 0, sequences = 0;  ///< per micro-batch; `tokens` counts rows
  std::int64_t expanded = 0;           ///< tokens of a micro-batch's sequences, if these share rows; 0: they share none
  std::int64_t longest = 0;            ///< tokens of a sequence; of an item, if items have several sequences
  std::int64_t padded = 0;             ///< tokens of a micro-batch if all its sequences were as long as its longest
  std::int64_t max_micro_batches = 0;  ///< micro-batches of a rank in a step
  std::int64_t evaluation_tokens = 0;  ///< tokens of an evaluation micro-batch during training; 0: no evaluations
};

/// Computes the bounds. tokens[i], labels[i]: the lengths from which the schedule was made. Plans all steps of runs with up to
/// two million units. Of longer runs it plans a sample of evenly spaced steps, and adds the longest item and the maximum number
/// of sequences in a micro-batch. `item_sequences`: sequences per item. `shared`: shared_prompts() of each item; empty: no shared
/// rows.
BatchBounds batch_bounds(const StepSchedule& schedule, std::span<const std::int32_t> tokens, std::span<const std::int32_t> labels,
                         std::int64_t item_sequences = 1, std::span<const std::int32_t> shared = {});

}  // namespace qft::loader
