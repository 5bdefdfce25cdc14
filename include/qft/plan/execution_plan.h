// How a run is executed on its ranks: what the configuration says, and where it says auto, what fits into memory.
#pragma once

#include "qft/comm/communicator.h"
#include "qft/config/run_config.h"
#include "qft/plan/feasibility.h"

#include <string>
#include <string_view>
#include <vector>

namespace qft::plan {

/// How a run is to be executed on each rank.
struct ExecutionPlan {
  parallel::Strategy strategy;  ///< a row of parallel::strategies()
  parallel::Offload offload;
  std::int64_t group = 1;            ///< micro-batches in flight, at most
  std::int64_t prefetch_budget = 0;  ///< bytes gathered ahead
  MemoryPolicy policy;               ///< what saves memory at the cost of time
  Footprint footprint;               ///< predicted, of one rank
  bool fits = true;
  std::int64_t available = 0;  ///< bytes that a rank may take, on the rank that has least
  std::string reason;          ///< why this strategy, where the configuration says auto
};

/// What is to be said of training in this type where ranks compute on CPUs; empty: nothing.
std::string precision_warning(const optim::Precision& precision, bool on_cpu);

/// What `strategy: auto` tries before it offloads, from the fastest to the one that needs least memory.
std::vector<std::string_view> automatic_strategies(int ranks, bool deterministic);

/// The three settings that would save most memory under this plan.
std::string memory_advice(const config::RunConfig& config, const ExecutionPlan& plan, int ranks);

/// Before anything is allocated. Collective over `comm`: alike on every rank. Throws ConfigError with the numbers where
/// not even weights, gradients and optimizer fit. `reference`: of a reference with weights of its own; null: there is none.
ExecutionPlan plan_execution(const config::RunConfig& config, const model::ModelSpec& spec, const optim::Precision& precision,
                             const parallel::ObjectiveTraits& objective, comm::Communicator& comm, c10::Device device,
                             bool training, const Batches& batches, const model::ModelSpec* reference = nullptr);

}  // namespace qft::plan
