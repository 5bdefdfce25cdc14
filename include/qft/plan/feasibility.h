// Whether a run fits into a rank's memory: one answer, for `strategy: auto` and for `qft plan`.
#pragma once

#include "qft/config/run_config.h"
#include "qft/plan/memory_plan.h"

#include <cstdint>
#include <functional>

namespace qft::plan {

/// How many micro-batches' compiled CPU products a group of micro-batches in flight needs at once (device::kernel_cache_bytes):
/// each number of tokens has its own; 0 if products of blocks, whose kernels serve any number, are all there is.
std::int64_t kernel_sets(const model::ModelSpec& spec, const optim::Precision& precision, std::int64_t group);

/// The most memory that a rank needs, in bytes, without what its process needs anyway.
struct Footprint {
  MemoryPlan memory;
  std::int64_t staged = 0;   ///< copies of a checkpoint that is written while training goes on; in host memory
  std::int64_t kernels = 0;  ///< compiled products on the CPU
  std::int64_t needed = 0;   ///< the part of it in device memory; on the CPU all of it
  std::int64_t on_host = 0;  ///< the part of it in host memory; on the CPU none
};
Footprint footprint_of(const ExecutionConfig& run, const config::RunConfig& config);

/// Bytes that the process leaves to the model; 0: unknown, everything fits.
struct Room {
  std::int64_t device = 0;  ///< on the CPU the host's
  std::int64_t host = 0;    ///< of a rank, beside a device with memory of its own
};

/// A tenth must stay free, because not everything is predicted.
bool fits(const Footprint& footprint, const Room& room);

/// A memory policy, and the memory that a rank needs under it.
struct PolicyFit {
  MemoryPolicy policy;
  Footprint footprint;
  bool fits = true;
};
/// The fastest of the policies that the run file allows that fits, else the one that needs least. `config_with`: the run under a
/// policy.
PolicyFit fastest_that_fits(const config::RunConfig& config, const Room& room,
                            const std::function<ExecutionConfig(const MemoryPolicy&)>& config_with);

/// The largest group of micro-batches in flight that fits into `available` bytes, a fifth of them free; at least 1, at most
/// `micro_batches`. `one`: the run with one micro-batch in flight, which needs `footprint`.
std::int64_t largest_group(const ExecutionConfig& one, const Footprint& footprint, std::int64_t available,
                           std::int64_t micro_batches);

}  // namespace qft::plan
