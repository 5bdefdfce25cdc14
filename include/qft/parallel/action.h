// A training step as data: a schedule is a pure function from the shape of the work to a list of actions; the executor
// interprets the list, and whatever predicts cost reads the same list.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "qft/model/spec.h"

namespace qft::parallel {

enum class ActionKind : std::uint8_t {
  acquire,   ///< unit: its weights are readable until the matching release
  forward,   ///< block, micro
  backward,  ///< block, micro: adds to the gradients of the block's units
  release,   ///< unit
  reduce,    ///< unit: its gradients for this step are complete on this rank; start their reduction
  step       ///< the end: norm, finite flag and loss are agreed on
};

struct Action {
  ActionKind kind;
  int target = -1;  ///< unit for acquire/release/reduce, block for forward/backward
  int micro = -1;   ///< for forward/backward: index of the micro-batch within the step
  bool operator==(const Action&) const = default;
};

using ActionList = std::vector<Action>;

/// "forward(layer 3, micro 1)"; for logs and traces.
std::string describe(const Action& action, const model::ModelSpec& spec);

/// What a schedule depends on besides the model.
struct ScheduleOptions {
  int micro_batches = 1;           ///< of this rank; may be 0
  int slots = 1;                   ///< micro-batches of the rank that has most: fixes the number of groups everywhere
  int group = 1;                   ///< micro-batches that pass a block per acquire; 1 = depth-first
  bool reduce_every_group = false; ///< true: gradients do not stay whole between groups (sharded); false: once a step
};

/// The training step: for every group, all blocks up (forward) and down (backward). Blocks below the lowest
/// trainable one take no part in the way down. Every rank gets the same sequence of acquire, release and reduce,
/// whatever its own number of micro-batches, so collectives always match.
ActionList training_schedule(const model::ModelSpec& spec, const ScheduleOptions& options);

/// Forward only (evaluation).
ActionList evaluation_schedule(const model::ModelSpec& spec, const ScheduleOptions& options);

}  // namespace qft::parallel
