#include "traffic.h"

#include "qft/parallel/sharded_buffer.h"

#include "gathered_set.h"
#include <c10/core/ScalarType.h>

namespace qft::plan {
namespace {

/// Bytes of the other ranks' slices.
std::int64_t others(std::int64_t n, int ranks, at::ScalarType type) {
  return parallel::Division::share(n, ranks) * (ranks - 1) * static_cast<std::int64_t>(c10::elementSize(type));
}

}  // namespace

Traffic step_traffic(const parallel::ActionList& list, const model::ModelSpec& spec, const parallel::Strategy& strategy,
                     const optim::Precision& precision, int ranks) {
  const at::ScalarType sums = parallel::wide(precision.grad);
  std::vector<parallel::GatheredBytes> weights;
  for (const auto& unit : spec.units)
    weights.push_back({others(unit.frozen_numel, ranks, precision.compute) + others(unit.packed_bytes, ranks, at::kByte),
                       others(unit.trainable_numel, ranks, precision.compute)});
  std::int64_t gathered = 0, reduced = 0;
  GatheredSet gathered_set(weights);
  // frozen weights of the previous step are still in flight
  for (const parallel::Action& action : list) gathered_set.run(action);
  for (const parallel::Action& action : list) {
    if (strategy.weights) gathered += gathered_set.run(action).gathered();
    if (action.kind == parallel::ActionKind::reduce)
      reduced += others(spec.units[static_cast<std::size_t>(action.target)].trainable_numel, ranks, sums);
  }
  if (!strategy.weights)
    for (const parallel::GatheredBytes& unit : weights) gathered += unit.trainable;
  return {static_cast<std::uint64_t>(gathered), static_cast<std::uint64_t>(reduced)};
}

}  // namespace qft::plan
