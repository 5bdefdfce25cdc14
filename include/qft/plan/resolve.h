// Decides how a run is executed on its ranks: as the run file says or, for `auto`, the fastest way that fits into memory.
#pragma once

#include "qft/config/run_config.h"
#include "qft/loader/batch_bounds.h"
#include "qft/plan/feasibility.h"
#include "qft/plan/run_plan.h"

#include <string>
#include <string_view>
#include <vector>

namespace qft::plan {

/// Bounds of the run's micro-batches.
using Batches = loader::BatchBounds;

/// Returns the parts of a plan that the run file alone decides: optimizer, randomness, saving, diagnostics.
RunPlan plan_of_settings(const config::RunConfig& config, bool training);

/// Returns a warning about training with this precision on CPUs; empty if there is none.
std::string precision_warning(const optim::Precision& precision, bool on_cpu);

/// Returns how many of `ranks` ranks can shard the same weights: data ranks and the ranks that share their sequences.
int sharing_ranks(const config::RunConfig& config, int ranks);

/// Describes the run file's degrees, which are known before the strategy: "4 ranks = data 2 x tensor 2 x context 1".
std::string layout_words(const config::RunConfig& config, int ranks);

/// Returns the strategies that `strategy: auto` tries on this many sharing_ranks() before it offloads, from the fastest to the
/// one that needs least memory.
std::vector<std::string_view> automatic_strategies(int ranks, bool deterministic);

/// Returns `run` with its work. Parts of `batches` that are 0 are unknown: then for full rows of cutoff_len tokens.
RunPlan with_work(RunPlan run, const config::RunConfig& config, const MachineFacts& machine, const Batches& batches);

/// Returns the offloading that the run file asks for; none if a device's memory is host memory.
parallel::Offload offload_of(const config::RunConfig& config, const MachineFacts& machine);

/// Returns how the ranks of `machine` hold a model under a strategy. Throws ConfigError if groups of hsdp do not divide them.
parallel::Sharding sharding_of(const config::RunConfig& config, const MachineFacts& machine, const parallel::Strategy& strategy,
                               const parallel::Offload& offload);

/// Returns `run` on the ranks of `machine` under a strategy, with the fastest schedule that the run file allows and that fits,
/// and its footprint. `group`: micro-batches in flight.
RunPlan under_strategy(RunPlan run, const config::RunConfig& config, const MachineFacts& machine,
                       const parallel::Strategy& strategy, const parallel::Offload& offload, std::int64_t group);

/// Completes a plan whose model is decided: work, strategy, schedule and prediction. A pure function of its arguments, so that
/// all ranks come to the same plan. Throws ConfigError with the numbers if not even weights, gradients and optimizer fit.
RunPlan resolve(RunPlan run, const config::RunConfig& config, const MachineFacts& machine, const Batches& batches);

}  // namespace qft::plan
