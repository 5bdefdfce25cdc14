// Decides how a run is executed on its ranks: as the run file says or, for `auto`, the fastest way that fits into memory.
#pragma once

#include "qft/comm/communicator.h"
#include "qft/config/run_config.h"
#include "qft/plan/feasibility.h"

#include <string>
#include <string_view>
#include <vector>

namespace qft::plan {

/// How each rank executes a run.
struct ExecutionPlan {
  parallel::Strategy strategy;  ///< a row of parallel::strategies()
  parallel::Offload offload;
  std::int64_t group = 1;            ///< most micro-batches in flight
  std::int64_t prefetch_budget = 0;  ///< bytes gathered ahead
  MemoryPolicy policy;               ///< trades time for memory
  Footprint footprint;               ///< prediction for one rank
  bool fits = true;
  std::int64_t available = 0;  ///< bytes that a rank may take, on the rank with the least
  std::string reason;          ///< why this strategy, if the run file says auto
};

/// Returns a warning about training with this precision on CPUs; empty if there is none.
std::string precision_warning(const optim::Precision& precision, bool on_cpu);

/// Returns the strategies that `strategy: auto` tries before it offloads, from the fastest to the one that needs least memory.
std::vector<std::string_view> automatic_strategies(int ranks, bool deterministic);

/// Returns the three settings that would save most memory under this plan.
std::string memory_advice(const config::RunConfig& config, const ExecutionPlan& plan, int ranks);

/// Plans a run before anything is allocated. `reference`: the spec of a reference with its own weights; null: none. Collective
/// over `comm`; the result is the same on every rank. Throws ConfigError with the numbers if not even weights, gradients and
/// optimizer fit.
ExecutionPlan plan_execution(const config::RunConfig& config, const model::ModelSpec& spec, const optim::Precision& precision,
                             const parallel::ObjectiveTraits& objective, comm::Communicator& comm, c10::Device device,
                             bool training, const Batches& batches, const model::ModelSpec* reference = nullptr);

}  // namespace qft::plan
