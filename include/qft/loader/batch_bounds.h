// The largest micro-batches of a run, known from the lengths of its items before it starts.
#pragma once

#include "qft/loader/schedule.h"

#include <cstdint>
#include <span>

namespace qft::loader {

/// 0: not known.
struct BatchBounds {
  std::int64_t tokens = 0, labels = 0, sequences = 0;  ///< of a micro-batch, at most; tokens: its rows
  std::int64_t expanded = 0;                           ///< tokens of its sequences, where these share rows; 0: they share none
  std::int64_t longest = 0;                            ///< tokens of a sequence, at most; an item's where it has several
  std::int64_t padded = 0;                             ///< of a micro-batch, were all its sequences as long as its longest
  std::int64_t max_micro_batches = 0;                  ///< micro-batches of a rank in a step, at most
  std::int64_t evaluation_tokens = 0;                  ///< of a micro-batch of evaluations during training; 0: there are none
};

/// tokens[i], labels[i]: the lengths that the schedule was made from. Plans all steps of runs with up to two million units; of
/// longer runs a sample of evenly spaced steps, with the longest item and as many sequences as a micro-batch can hold.
/// `item_sequences`: sequences of an item. `shared`: of each item, shared_prompts(); empty: none share rows.
BatchBounds batch_bounds(const StepSchedule& schedule, std::span<const std::int32_t> tokens, std::span<const std::int32_t> labels,
                         std::int64_t item_sequences = 1, std::span<const std::int32_t> shared = {});

}  // namespace qft::loader
