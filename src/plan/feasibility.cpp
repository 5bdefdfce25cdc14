#include "qft/plan/feasibility.h"

#include "qft/comm/device_communicator.h"
#include "qft/comm/exchange.h"
#include "qft/comm/session.h"
#include "qft/core/error.h"
#include "qft/core/units.h"
#include "qft/device/backends.h"
#include "qft/device/memory.h"
#include "qft/device/staged_copy.h"
#include "qft/ops/generic.h"
#include "qft/ops/matmul_choice.h"
#include "qft/parallel/activation_bytes.h"
#include "qft/parallel/groups.h"
#include "qft/parallel/layout.h"
#include "qft/plan/memory_plan.h"
#include "qft/plan/resolve.h"

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

/// Memory of the communicators that the run, and a reference with its own weights, will make. `strategy: auto` chooses among
/// strategies with equally many.
std::int64_t communicator_bytes(const config::RunConfig& config, const RunPlan& run, const MachineFacts& facts,
                                c10::Device device) {
  const std::string& name = config.parallel.strategy;
  const parallel::Strategy& strategy = name == "auto" ? parallel::strategies().front() : parallel::strategy_of(name);
  const parallel::Sharding sharding = sharding_of(config, facts, strategy, offload_of(config, facts));
  const int groups = parallel::num_device_groups(sharding, run.training) +
                     (run.reference_model ? parallel::num_device_groups(sharding, /*optimizer=*/false) : 0);
  return groups * comm::device_group_bytes(device, facts.ranks);
}

/// For `group` micro-batches in flight.
std::int64_t kernel_bytes(const RunPlan& run, std::int64_t group) {
  return run.on_cpu ? device::kernel_cache_bytes(kernel_sets(*run.spec, run.precision, group)) : 0;
}

}  // namespace

int data_ranks_of_a_node(const config::RunConfig& config, int ranks) {
  const std::int64_t together = config.parallel.ranks_of_a_data_rank();
  if (ranks % together == 0) return static_cast<int>(ranks / together);
  fail_config(
      "hsdp shards inside each node, but a node has {} ranks, which do not divide into data ranks of tensor_parallel {} x "
      "context_parallel {} = {} ranks: set hsdp_group_size",
      ranks, config.parallel.tensor_parallel, config.parallel.context_parallel, together);
}

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
  const std::int64_t group = config.parallel.hsdp_group_size;
  if (config.parallel.strategy == "hsdp")
    facts.group_ranks = group > 0 ? group : data_ranks_of_a_node(config, parallel::ranks_of_a_node(comm));
  const int sharers = session ? comm::Session::current().sharers_of(device) : 1;
  const std::int64_t left = device::memory_left(device, sharers) - communicator_bytes(config, run, facts, device);
  facts.available = least(std::min(left, allowed(config, device)));
  if (facts.own_memory) {
    const int neighbours = session ? comm::Session::current().local_size() : 1;
    facts.host = least(std::max<std::int64_t>(1, device::memory_left(c10::kCPU, neighbours)));
  }
  if (const double limit = config.parallel.max_memory * 1e9; limit > 0 && *facts.available <= 0)
    fail_config("max_memory {} is less than the {} that a process takes before it loads the model: raise it", format_bytes(limit),
                format_bytes(limit - static_cast<double>(*facts.available)));
  return facts;
}

std::int64_t kernel_sets(const model::ModelSpec& spec, const optim::Precision& precision, std::int64_t group) {
  // Products of blocks need even LoRA ranks.
  bool blocks = true;
  for (const model::Layer& layer : spec.layers)
    for (const model::SubLayerSpec& sublayer : layer)
      for (const model::ParamGroup& linears : sublayer.params)
        for (const model::LoraRows& part : linears.lora) blocks = blocks && part.rank % 2 == 0;
  const bool shared = precision.compute == at::kBFloat16 && blocks && ops::blocked_bf16_matmul();
  return shared ? 0 : group;
}

Footprint footprint_of(const RunPlan& run) {
  Footprint f;
  f.memory = plan_memory(run);
  f.kernels = kernel_bytes(run, run.schedule.group);
  // Data on a device is copied to the host before it is written, with and without async_save.
  if (run.training && run.saving.enabled && (run.saving.async || !run.on_cpu)) f.staged = staged_bytes(run);
  if (run.training && !run.on_cpu) f.staged += static_cast<std::int64_t>(device::StagedCopy::kBytes);
  f.needed = f.memory.total() + (run.on_cpu ? f.memory.host + f.staged + f.kernels : 0);
  if (!run.on_cpu) f.on_host = f.memory.host + f.staged;
  return f;
}

AvailableMemory memory_for(const RunPlan& run, const MachineFacts& machine) {
  AvailableMemory room{.host = machine.host};
  if (!machine.available) return room;
  const bool unified = !machine.on_cpu && !machine.own_memory;
  room.device = std::max<std::int64_t>(1, *machine.available - (unified ? footprint_of(run).staged : 0));
  return room;
}

bool fits(const Footprint& footprint, const AvailableMemory& room) {
  const auto holds = [](std::int64_t bytes, std::int64_t available) { return available == 0 || bytes <= available / 10 * 9; };
  return holds(footprint.needed, room.device) && holds(footprint.on_host, room.host);
}

RunPlan with_fastest(RunPlan run, std::span<const parallel::Schedule> schedules, const MachineFacts& machine) {
  const AvailableMemory room = memory_for(run, machine);
  for (const parallel::Schedule& schedule : schedules) {
    run.schedule = schedule;
    run.footprint = footprint_of(run);
    run.fits = fits(run.footprint, room);
    if (run.fits) break;
  }
  return run;
}

std::int64_t largest_group(const RunPlan& one, const MachineFacts& machine, std::int64_t micro_batches) {
  const std::int64_t each = parallel::activation_bytes(*one.spec, one.precision.compute, one.shape.tokens, one.schedule.recompute,
                                                       one.schedule.offload_inputs);
  const std::int64_t more = std::max<std::int64_t>(1, each + kernel_bytes(one, 2) - kernel_bytes(one, 1));
  const std::int64_t group = (memory_for(one, machine).device / 5 * 4 - (one.footprint.needed - each)) / more;
  return std::clamp<std::int64_t>(group, 1, std::max<std::int64_t>(1, micro_batches));
}

}  // namespace qft::plan
