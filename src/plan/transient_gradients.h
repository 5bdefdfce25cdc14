// Gradients that come and go within a step, action by action.
#pragma once

#include "qft/parallel/sharded_buffer.h"
#include "qft/plan/memory_plan.h"

#include <cstdint>
#include <deque>
#include <map>
#include <vector>

namespace qft::plan {

/// Counts the gradients that are between first use and the end of their reduction. Not collective.
class TransientGradients {
 public:
  /// Adds and subtracts its bytes in each of `gauges`. `run` and the gauges must outlive this.
  TransientGradients(const ExecutionConfig& run, std::vector<parallel::Gauge*> gauges);

  /// What the executor and the store allocate and free in this action.
  void run(const parallel::Action& action);

 private:
  void add(std::int64_t bytes);
  void use(int unit);
  void reduce(int unit);

  const ExecutionConfig& run_;
  std::vector<parallel::Gauge*> gauges_;
  std::int64_t item_, wide_item_;
  std::map<int, std::int64_t> open_;   ///< bytes of a unit's gradients that are added to
  std::deque<std::int64_t> reducing_;  ///< bytes in flight, the oldest first
};

}  // namespace qft::plan
