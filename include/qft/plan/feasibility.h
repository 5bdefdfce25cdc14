// Measures the machine as far as a run's execution depends on it, and decides whether the run fits into a rank's memory. Used by
// `strategy: auto` and by `qft plan`.
#pragma once

#include "qft/comm/communicator.h"
#include "qft/config/run_config.h"
#include "qft/plan/run_plan.h"

#include <cstdint>
#include <optional>
#include <span>

#include <c10/core/Device.h>

namespace qft::plan {

/// Facts on which all ranks agreed, because all must run one plan; `process` is this rank's, and only reported.
struct MachineFacts {
  int ranks = 1;
  std::int64_t group_ranks = 1;                ///< data ranks that share one copy under hsdp
  bool on_cpu = true;                          ///< ranks compute on the CPU
  bool own_memory = false;                     ///< every device has its own memory
  bool records_graphs = false;                 ///< devices record CUDA graphs
  model::KernelChoice kernels = {};            ///< of all devices, the kernels that take most memory
  std::int64_t process = 0;                    ///< bytes of this process before it loads the model
  std::optional<std::int64_t> available = {};  ///< bytes that the model may take, on the rank with the least; nullopt: unknown
  std::int64_t host = 0;  ///< bytes of host memory per rank beside a device's own memory; 0: not needed, or unknown
};

/// Measures this machine for a run whose model and precision are decided. Throws ConfigError if max_memory leaves nothing, or if
/// nodes differ and the strategy needs groups of a node's ranks. Collective.
MachineFacts machine_facts(const config::RunConfig& config, const RunPlan& run, comm::Communicator& comm, c10::Device device);

/// Returns how many data ranks the `ranks` ranks of a node form: the group of hsdp without hsdp_group_size. Throws ConfigError if
/// a data rank would reach into another node.
int data_ranks_of_a_node(const config::RunConfig& config, int ranks);

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
