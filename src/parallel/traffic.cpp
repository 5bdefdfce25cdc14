#include "qft/parallel/traffic.h"

#include <c10/core/ScalarType.h>

#include "qft/parallel/presence.h"
#include "split_buffer.h"

namespace qft::parallel {
namespace {

/// The slices of the other ranks.
std::int64_t others(std::int64_t n, int ranks, at::ScalarType type) {
  return Division::share(n, ranks) * (ranks - 1) * static_cast<std::int64_t>(c10::elementSize(type));
}

}  // namespace

Traffic step_traffic(const ActionList& list, const model::ModelSpec& spec, const Strategy& strategy,
                     const optim::Precision& precision, int ranks) {
  const at::ScalarType sums = wide(precision.grad);
  std::vector<GatheredBytes> weights;
  for (const auto& unit : spec.units)
    weights.push_back({others(unit.frozen_numel, ranks, precision.compute), others(unit.trainable_numel, ranks, precision.compute)});
  std::int64_t gathered = 0, reduced = 0;
  Presence presence(weights);
  for (const Action& action : list) presence.run(action);  // the step before leaves frozen weights on their way
  for (const Action& action : list) {
    if (strategy.weights) gathered += presence.run(action);
    if (action.kind == ActionKind::reduce)
      reduced += others(spec.units[static_cast<std::size_t>(action.target)].trainable_numel, ranks, sums);
  }
  if (!strategy.weights)
    for (const GatheredBytes& unit : weights) gathered += unit.trainable;
  return {static_cast<std::uint64_t>(gathered), static_cast<std::uint64_t>(reduced)};
}

}  // namespace qft::parallel
