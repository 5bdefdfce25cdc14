#include "transient_gradients.h"

#include "qft/parallel/weight_store.h"

#include <utility>

namespace qft::plan {

TransientGradients::TransientGradients(const RunPlan& run, std::vector<parallel::Gauge*> gauges)
    : run_(run),
      gauges_(std::move(gauges)),
      item_(static_cast<std::int64_t>(c10::elementSize(run.precision.grad))),
      wide_item_(static_cast<std::int64_t>(c10::elementSize(parallel::wide(run.precision.grad)))) {}

void TransientGradients::run(const parallel::Action& action) {
  const bool head = action.kind == parallel::ActionKind::forward && action.target == run_.spec->head_unit() &&
                    run_.objective.kind == parallel::ObjectiveKind::row_local;
  if (head || action.kind == parallel::ActionKind::backward)
    for (const int unit : run_.spec->units_of_block(action.target)) use(unit);
  if (action.kind == parallel::ActionKind::reduce) reduce(action.target);
}

void TransientGradients::add(std::int64_t bytes) {
  for (parallel::Gauge* gauge : gauges_) gauge->add(bytes);
}

void TransientGradients::use(int unit) {
  const std::int64_t n = run_.spec->units[static_cast<std::size_t>(unit)].trainable_numel;
  const std::int64_t bytes = (run_.sharding.strategy.sharded() ? padded_numel(n, slices_of(run_.sharding)) : n) * item_;
  if (bytes > 0 && open_.emplace(unit, bytes).second) add(bytes);
}

void TransientGradients::reduce(int unit) {
  use(unit);
  const std::int64_t bytes = open_[unit];
  const std::int64_t wider = wide_item_ == item_ ? 0 : bytes / item_ * wide_item_;
  add(wider);
  open_.erase(unit);
  reducing_.push_back(bytes + wider);
  if (reducing_.size() <= parallel::kMaxReductionsInFlight) return;
  add(-reducing_.front());
  reducing_.pop_front();
}

}  // namespace qft::plan
