// Counts the bytes that a training step moves between ranks, from the action list that runs.
#pragma once

#include "qft/model/spec.h"
#include "qft/optim/precision.h"
#include "qft/parallel/action.h"
#include "qft/parallel/strategy.h"

#include <cstdint>

namespace qft::plan {

/// Bytes that each rank receives, counted as in comm::Counters.
struct Traffic {
  std::uint64_t all_gather = 0;      ///< weights, in the shard group
  std::uint64_t reduce_scatter = 0;  ///< gradients, in the shard group
};

/// Returns the traffic of one step of a sharded strategy in a shard group of `ranks` ranks, after an earlier step with the same
/// list. Counts the other ranks' slices for each gather of a unit, for each reduction of its gradients and, if every rank has
/// whole weights, for their update.
Traffic step_traffic(const parallel::ActionList& list, const model::ModelSpec& spec, const parallel::Strategy& strategy,
                     const optim::Precision& precision, int ranks);

}  // namespace qft::plan
