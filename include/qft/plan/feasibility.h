// Decides whether a run fits into a rank's memory. Used by `strategy: auto` and by `qft plan`.
#pragma once

#include "qft/plan/machine_facts.h"
#include "qft/plan/run_plan.h"

#include <cstdint>
#include <span>

namespace qft::plan {

/// Returns for how many micro-batches' token counts CPU products are compiled at once, for a group of micro-batches in flight
/// (see device::kernel_cache_bytes). Each token count has its own kernels; 0 if only products of blocks run, because their
/// kernels serve any count.
std::int64_t kernel_sets(const model::ModelSpec& spec, const optim::Precision& precision, std::int64_t group);

/// Predicts the memory of `run`, checkpoint copies and compiled kernels included.
Footprint footprint_of(const RunPlan& run);

/// Bytes that the process leaves to the model; 0: unknown, and everything fits.
struct AvailableMemory {
  std::int64_t device = 0;  ///< on the CPU the host's
  std::int64_t host = 0;    ///< host memory per rank, besides a device with its own memory
};
/// Returns the memory of the machine for the model of `run`. If a device uses host memory, checkpoint copies are subtracted here;
/// on the CPU the footprint counts them.
AvailableMemory memory_for(const RunPlan& run, const MachineFacts& machine);

/// True if the footprint fits. A tenth must stay free, because not everything is predicted.
bool fits(const Footprint& footprint, const AvailableMemory& room);

/// Returns `run` with the fastest of `schedules` that fits, else with the last one, and its footprint.
RunPlan with_fastest(RunPlan run, std::span<const parallel::Schedule> schedules, const MachineFacts& machine);

/// Returns the largest group of micro-batches in flight that fits into the machine with a fifth of its memory free; at least 1,
/// at most `micro_batches`. `one`: the run with one micro-batch in flight and its footprint.
std::int64_t largest_group(const RunPlan& one, const MachineFacts& machine, std::int64_t micro_batches);

}  // namespace qft::plan
