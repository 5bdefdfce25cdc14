#include "qft/plan/machine_facts.h"

#include "qft/comm/device_communicator.h"
#include "qft/comm/exchange.h"
#include "qft/comm/session.h"
#include "qft/core/error.h"
#include "qft/core/units.h"
#include "qft/device/backends.h"
#include "qft/device/memory.h"
#include "qft/ops/generic.h"
#include "qft/parallel/layout.h"

#include <algorithm>
#include <limits>

namespace qft::plan {
namespace {

/// Bytes that max_memory leaves for the model on this rank; below 0 if the process already uses more.
std::int64_t allowed(const config::RunConfig& config, c10::Device device) {
  const double limit = config.parallel.max_memory * 1e9;
  if (limit <= 0) return std::numeric_limits<std::int64_t>::max();
  return static_cast<std::int64_t>(limit) - device::memory_use(device).current;
}

}  // namespace

MachineFacts machine_facts(const config::RunConfig& config, const RunPlan& run, comm::Communicator& comm, c10::Device device) {
  const auto most = [&](int value) { return comm::all_reduce_value(comm, value, comm::ReduceOp::max); };
  const auto least = [&](std::int64_t value) { return comm::all_reduce_value(comm, value, comm::ReduceOp::min); };
  const bool session = comm::Session::exists();
  MachineFacts facts{.ranks = comm.size(), .on_cpu = device.is_cpu(), .records_graphs = device::records_graphs(device)};
  facts.process = device::memory_use(device).current;
  facts.own_memory = most(device::has_own_memory(device) ? 0 : 1) == 0;
  facts.kernels.plain = most(ops::generic::runs_generic(device, run.precision.compute) ? 1 : 0) == 1;
  facts.kernels.attention = static_cast<ops::AttentionPath>(
      most(static_cast<int>(ops::attention_path(device, run.precision.compute, run.spec->config.head_dim))));
  const int sharers = session ? comm::Session::current().sharers_of(device) : 1;
  const std::int64_t left = device::memory_left(device, sharers) - comm::device_group_bytes(device, comm.size());
  facts.available = least(std::min(left, allowed(config, device)));
  if (facts.own_memory) {
    const int neighbours = session ? comm::Session::current().local_size() : 1;
    facts.host = least(std::max<std::int64_t>(1, device::memory_left(c10::kCPU, neighbours)));
  }
  if (const double limit = config.parallel.max_memory * 1e9; limit > 0 && *facts.available <= 0)
    fail_config("max_memory {} is less than the {} that a process takes before it loads the model: raise it",
                format_bytes(limit), format_bytes(limit - static_cast<double>(*facts.available)));
  const std::int64_t group = config.parallel.hsdp_group_size;
  if (config.parallel.strategy == "hsdp") facts.group_ranks = group > 0 ? group : parallel::ranks_of_a_node(comm);
  return facts;
}

}  // namespace qft::plan
