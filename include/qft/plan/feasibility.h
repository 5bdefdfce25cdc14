// Whether a way of running fits into a rank's memory: one answer, for a run that chooses its strategy and for `qft plan`.
#pragma once

#include <cstdint>
#include <functional>

#include "qft/config/run_config.h"
#include "qft/plan/memory_plan.h"

namespace qft::plan {

/// How many micro-batches' compiled CPU products a group of micro-batches in flight needs at once (device::kernel_cache_bytes):
/// each number of tokens has its own, but where the same ones serve all.
std::int64_t kernel_sets(const model::ModelSpec& spec, const optim::Precision& precision, std::int64_t group);

/// What a rank takes at most besides its process.
struct Footprint {
  MemoryPlan memory;
  std::int64_t staged = 0;   ///< copies of a checkpoint that is written while training goes on; in host memory
  std::int64_t kernels = 0;  ///< compiled products on the CPU, beyond those of one micro-batch
  std::int64_t needed = 0;   ///< what of it is the device's memory; on the CPU all of it
};
Footprint footprint_of(const Arrangement& a, const config::RunConfig& config);

/// `available`: bytes that the process leaves to the model. A tenth stays free for what is not predicted.
bool fits(const Footprint& footprint, std::int64_t available);

/// A way of running, and what it takes.
struct Way {
  MemoryPolicy policy;
  Footprint footprint;
  bool fits = true;
};
/// Of the policies that the run file allows the fastest that fits, else the one that takes least. `arrange`: with a policy;
/// `available` 0: unknown, all fit.
Way fastest_that_fits(const config::RunConfig& config, std::int64_t available,
                      const std::function<Arrangement(const MemoryPolicy&)>& arrange);

/// The largest group of micro-batches in flight for which `available` bytes suffice, a fifth of them free; at least 1, at most
/// `micro_batches`. `one`: with one in flight, which takes `footprint`.
std::int64_t largest_group(const Arrangement& one, const Footprint& footprint, std::int64_t available, std::int64_t micro_batches);

}  // namespace qft::plan
