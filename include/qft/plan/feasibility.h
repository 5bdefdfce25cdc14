// Decides whether a run fits into a rank's memory. Used by `strategy: auto` and by `qft plan`.
#pragma once

#include "qft/config/run_config.h"
#include "qft/plan/memory_plan.h"

#include <cstdint>
#include <functional>

namespace qft::plan {

/// Returns for how many micro-batches' token counts CPU products are compiled at once, for a group of micro-batches in flight
/// (see device::kernel_cache_bytes). Each token count has its own kernels; 0 if only products of blocks run, because their
/// kernels serve any count.
std::int64_t kernel_sets(const model::ModelSpec& spec, const optim::Precision& precision, std::int64_t group);

/// The most memory that a rank needs, in bytes, beyond its process.
struct Footprint {
  MemoryPlan memory;
  std::int64_t staged = 0;   ///< host copies of a checkpoint that is written while training continues
  std::int64_t kernels = 0;  ///< compiled products on the CPU
  std::int64_t needed = 0;   ///< the part in device memory; on the CPU everything
  std::int64_t on_host = 0;  ///< the part in host memory; on the CPU 0
};
/// Predicts the memory of `run`, checkpoint copies and compiled kernels included.
Footprint footprint_of(const ExecutionConfig& run, const config::RunConfig& config);

/// Bytes that the process leaves to the model; 0: unknown, and everything fits.
struct AvailableMemory {
  std::int64_t device = 0;  ///< on the CPU the host's
  std::int64_t host = 0;    ///< host memory per rank, besides a device with its own memory
};

/// True if the footprint fits. A tenth must stay free, because not everything is predicted.
bool fits(const Footprint& footprint, const AvailableMemory& room);

/// A memory policy, and the memory that a rank needs under it.
struct PolicyFit {
  MemoryPolicy policy;
  Footprint footprint;
  bool fits = true;
};
/// Returns the fastest policy that the run file allows and that fits, else the one that needs least. `config_with` returns the
/// run under a policy.
PolicyFit fastest_that_fits(const config::RunConfig& config, const AvailableMemory& room,
                            const std::function<ExecutionConfig(const MemoryPolicy&)>& config_with);

/// Returns the largest group of micro-batches in flight that fits into `available` bytes with a fifth of them free; at least 1,
/// at most `micro_batches`. `one`: the run with one micro-batch in flight; it needs `footprint`.
std::int64_t largest_group(const ExecutionConfig& one, const Footprint& footprint, std::int64_t available,
                           std::int64_t micro_batches);

}  // namespace qft::plan
