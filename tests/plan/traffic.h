// Counts the bytes that a training step moves between ranks, from the action list that runs.
#pragma once

#include "qft/model/spec.h"
#include "qft/optim/precision.h"
#include "qft/parallel/action.h"
#include "qft/parallel/sharded_buffer.h"
#include "qft/parallel/strategy.h"

#include <cstdint>
#include <vector>

#include "plan/gathered_set.h"
#include <c10/core/ScalarType.h>

namespace qft::plan {

/// Bytes that each rank receives, counted as in comm::Counters.
struct Traffic {
  std::uint64_t all_gather = 0;      ///< weights, in the shard group
  std::uint64_t reduce_scatter = 0;  ///< gradients, in the shard group
};

/// Bytes of the other ranks' slices.
inline std::int64_t bytes_of_others(std::int64_t n, int ranks, at::ScalarType type) {
  return parallel::Division::share(n, ranks) * (ranks - 1) * static_cast<std::int64_t>(c10::elementSize(type));
}

/// Returns the traffic of one step of a sharded strategy in a shard group of `ranks` ranks, after an earlier step with the same
/// list. Counts the other ranks' slices for each gather of a unit, for each reduction of its gradients and, if every rank has
/// whole weights, for their update.
inline Traffic step_traffic(const parallel::ActionList& list, const model::ModelSpec& spec, const parallel::Strategy& strategy,
                            const optim::Precision& precision, int ranks) {
  const at::ScalarType sums = parallel::wide(precision.grad);
  std::vector<parallel::GatheredBytes> weights;
  for (const auto& unit : spec.units)
    weights.push_back(
        {bytes_of_others(unit.frozen_numel, ranks, precision.compute) + bytes_of_others(unit.packed_bytes, ranks, at::kByte),
         bytes_of_others(unit.trainable_numel, ranks, precision.compute)});
  std::int64_t gathered = 0, reduced = 0;
  GatheredSet gathered_set(weights);
  // frozen weights of the previous step are still in flight
  for (const parallel::Action& action : list) gathered_set.run(action);
  for (const parallel::Action& action : list) {
    if (strategy.weights) gathered += gathered_set.run(action).gathered();
    if (action.kind == parallel::ActionKind::reduce)
      reduced += bytes_of_others(spec.units[static_cast<std::size_t>(action.target)].trainable_numel, ranks, sums);
  }
  if (!strategy.weights)
    for (const parallel::GatheredBytes& unit : weights) gathered += unit.trainable;
  return {static_cast<std::uint64_t>(gathered), static_cast<std::uint64_t>(reduced)};
}

}  // namespace qft::plan
