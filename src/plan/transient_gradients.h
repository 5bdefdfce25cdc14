// Tracks the gradients that come and go within a step, action by action.
#pragma once

#include "qft/parallel/sharded_buffer.h"
#include "qft/plan/memory_plan.h"

#include <cstdint>
#include <deque>
#include <map>
#include <vector>

namespace qft::plan {

/// Counts gradients from their first use to the end of their reduction. Not collective.
class TransientGradients {
 public:
  /// Adds and subtracts its bytes in each of `gauges`. `run` and the gauges must outlive this.
  TransientGradients(const RunPlan& run, std::vector<parallel::Gauge*> gauges);

  /// Applies the allocations of the executor and the store in this action.
  void run(const parallel::Action& action);

 private:
  void add(std::int64_t bytes);
  void use(int unit);
  void reduce(int unit);

  const RunPlan& run_;
  std::vector<parallel::Gauge*> gauges_;
  std::int64_t item_, wide_item_;
  std::map<int, std::int64_t> open_;   ///< by unit: bytes of gradients that are accumulating
  std::deque<std::int64_t> reducing_;  ///< bytes of reductions in flight, the oldest first
};

}  // namespace qft::plan
