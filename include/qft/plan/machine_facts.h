// The machine of a run, as far as its execution depends on it.
#pragma once

#include "qft/comm/communicator.h"
#include "qft/config/run_config.h"
#include "qft/plan/run_plan.h"

#include <cstdint>
#include <optional>

#include <c10/core/Device.h>

namespace qft::plan {

/// Facts on which all ranks agreed, because all must run one plan; `process` is this rank's, and only reported.
struct MachineFacts {
  int ranks = 1;
  std::int64_t group_ranks = 1;                ///< ranks that share one copy under hsdp
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

}  // namespace qft::plan
