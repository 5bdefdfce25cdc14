#include "qft/plan/plan.h"

#include "qft/core/error.h"
#include "qft/device/backends.h"
#include "qft/device/device.h"
#include "qft/device/memory.h"
#include "qft/ops/generic.h"
#include "qft/plan/feasibility.h"
#include "qft/plan/resolve.h"

#include <algorithm>
#include <cstdlib>
#include <utility>

namespace qft::plan {
namespace {

using parallel::Strategy;

class Planner {
 public:
  Planner(const config::RunConfig& config, Plan& plan, const Question& question)
      : config_(config), plan_(plan), question_(question) {
    for (const StepShape& step : plan.workload.steps) max_micro_batches_ = std::max(max_micro_batches_, step.max_micro_batches);
    facts_ = facts();
    const auto& p = config.parallel;
    graphs_ = !on_cpu() && config.training.cuda_graphs;
    if (graphs_) plan.workload = padded_to_graph_shapes(std::move(plan.workload));
    const BatchShape& largest = plan.workload.largest;
    run_ = with_work(plan.run, config, facts_, {.shape = largest, .max_micro_batches = max_micro_batches_});
    if (!on_host()) offload_ = {p.offload_optimizer == "cpu", p.offload_param == "cpu", p.offload_activations == "cpu"};
    if (const std::string warning = precision_warning(plan.run.precision, on_cpu()); !warning.empty())
      plan.notes.push_back(warning);
    for (const auto& [key, place] : {std::pair{"offload_optimizer", &p.offload_optimizer},
                                     {"offload_param", &p.offload_param},
                                     {"offload_activations", &p.offload_activations}})
      if (on_host() && *place == "cpu")
        plan.notes.push_back(fmt::format("{} is cpu, which has no effect on {}: its memory is host memory", key,
                                         on_cpu() ? "a CPU" : "a device with unified memory"));
  }

  void run() {
    for (const Strategy& strategy : parallel::strategies()) {
      if (!question_.only.empty() && strategy.name != question_.only) continue;
      if (sharing_ranks(config_, plan_.ranks) == 1 && strategy.sharded()) continue;
      if (strategy.grouped && !groups()) continue;
      if (graphs_ && !strategy.has_fixed_addresses()) continue;
      for (const std::int64_t group : groups_of(strategy)) add(strategy, group);
    }
  }

 private:
  int data_ranks() const { return config_.data_ranks(plan_.ranks); }
  /// Data ranks that share a copy under hsdp.
  int group_ranks() const {
    if (config_.parallel.hsdp_group_size > 0)
      return static_cast<int>(std::min<std::int64_t>(config_.parallel.hsdp_group_size, 1 << 20));
    if (!plan_.machine) return 1;
    const auto of_a_node = static_cast<int>(plan_.machine->ranks_per_node);
    const bool whole = of_a_node % config_.parallel.ranks_of_a_data_rank() == 0;
    return whole || config_.parallel.strategy == "hsdp" ? data_ranks_of_a_node(config_, of_a_node) : 1;
  }
  bool groups() const {
    const int size = group_ranks();
    const bool divides = data_ranks() % size == 0, asked = config_.parallel.strategy == "hsdp";
    if (asked && config_.parallel.hsdp_group_size <= 0 && !plan_.machine)
      fail_config("strategy hsdp: the number of ranks per node is unknown: set hsdp_group_size, or name a --machine");
    if (asked && !divides)
      fail_config("hsdp_group_size {} does not divide {} data ranks: change one of them", size, data_ranks());
    if (asked && (size == 1 || size == data_ranks()))
      fail_config(
          "strategy hsdp with groups of {} of {} data ranks is the same as {}: plan that, or set hsdp_group_size between them",
          size, data_ranks(), size == 1 ? "ddp" : "zero3");
    return divides && size > 1 && size < data_ranks();
  }

  /// The machine that the plan assumes.
  MachineFacts facts() const {
    const at::ScalarType compute = plan_.run.precision.compute;
    MachineFacts facts{.ranks = plan_.ranks,
                       .group_ranks = group_ranks(),
                       .on_cpu = on_cpu(),
                       .own_memory = !on_host(),
                       .records_graphs = !on_cpu(),
                       .process = process()};
    if (!on_cpu())
      facts.kernels.attention = plan_.process.torch_attention
                                    ? ops::planned_attention_path(compute, plan_.run.spec->config.head_dim)
                                    : ops::AttentionPath::matrices;
    // Devices have kernels for the same types as the CPU.
    facts.kernels.plain = !plan_.process.kernels || ops::generic::runs_generic(c10::kCPU, compute);
    if (plan_.available > 0) facts.available = plan_.available - process();
    if (!on_host()) facts.host = host_left();
    return facts;
  }

  std::int64_t process() const { return plan_.process.bytes; }
  bool on_cpu() const { return plan_.process.on_cpu; }
  bool on_host() const { return on_cpu() || plan_.process.unified; }
  /// Returns 1, the run file's value, and the largest that fits; only 1 if a larger group saves no gathers or reductions.
  std::vector<std::int64_t> groups_of(const Strategy& strategy) const {
    std::vector<std::int64_t> groups = {1};
    const std::int64_t asked = config_.training.breadth_first_micro_batches;
    if (!strategy.reduce_every_group()) return groups;
    groups.push_back(asked > 0 ? std::min(asked, max_micro_batches_) : largest(strategy));
    std::sort(groups.begin(), groups.end());
    groups.erase(std::unique(groups.begin(), groups.end()), groups.end());
    return groups;
  }

  /// Checkpoint copies to add to a footprint, which counts them only on the CPU; nonzero if the device uses host memory.
  std::int64_t staged_beside(const Footprint& footprint) const { return plan_.process.unified ? footprint.staged : 0; }

  /// A rank's share of its node's memory, minus the process; 0: unknown.
  std::int64_t host_left() const {
    if (!plan_.machine || plan_.machine->host_memory_gb <= 0) return 0;
    const auto share =
        static_cast<std::int64_t>(plan_.machine->host_memory_gb * 1e9) / plan_.machine->ranks_of_a_node(plan_.ranks);
    return std::max<std::int64_t>(1, share - process());
  }

  RunPlan under(const Strategy& strategy, std::int64_t group, const RunPlan& run) const {
    return under_strategy(run, config_, facts_, strategy, offload_, group);
  }

  std::int64_t largest(const Strategy& strategy) const {
    if (plan_.available == 0) return max_micro_batches_;
    return largest_group(under(strategy, 1, run_), facts_, max_micro_batches_);
  }

  /// Finds the longest sequence by bisection, in steps of kLongestStep. `below`: a length known not to fit; 0: none.
  std::int64_t longest(const Strategy& strategy, std::int64_t group, std::int64_t below) const {
    if (plan_.available == 0) return 0;
    const model::ModelConfig& model = plan_.run.spec->config;
    const bool shares = plan_.workload.largest.expanded > 0;  // shared prompts use one table of angles
    std::int64_t limit = shares && model.rope.dynamic ? model.rope.dynamic->positions : model.max_position_embeddings;
    if (below > 0) limit = std::min(limit, (below - 1) / kLongestStep * kLongestStep);
    const auto tokens_of = [&](std::int64_t steps) { return std::min(steps * kLongestStep, limit); };
    const auto fits = [&](std::int64_t steps) {
      MicroShape micro;
      for (std::int64_t i = 0; i < plan_.sequences; ++i) micro.add_sequence(tokens_of(steps), tokens_of(steps));
      if (shares) micro.share(0);
      RunPlan run = run_;
      run.shape = micro;
      return under(strategy, group, run).fits;
    };
    std::int64_t fitting = 0, beyond = (limit + kLongestStep - 1) / kLongestStep + 1;
    while (beyond - fitting > 1) {
      const std::int64_t between = fitting + (beyond - fitting) / 2;
      (fits(between) ? fitting : beyond) = between;
    }
    return tokens_of(fitting);
  }

  void add(const Strategy& strategy, std::int64_t group) {
    Row row{.run = under(strategy, group, run_)};
    const Footprint& footprint = row.run.footprint;
    row.requested = config_.parallel.strategy == strategy.name;
    row.staged = on_host() ? footprint.staged : 0;
    row.process = process() + footprint.kernels;
    row.needed = process() + footprint.needed + staged_beside(footprint);
    if (question_.longest) {
      const BatchShape& largest = plan_.workload.largest;
      const std::int64_t tokens = std::max(largest.tokens, largest.expanded),
                         each = (tokens + plan_.sequences - 1) / plan_.sequences;
      row.longest = longest(strategy, group, row.run.fits ? 0 : each);
    }
    // The bytes do not depend on the machine, so any machine will do.
    if (question_.times) row.time = simulate(row.run, plan_.machine.value_or(any_machine()), plan_.workload);
    plan_.rows.push_back(std::move(row));
  }

  static Machine any_machine() {
    Machine m;
    m.matmul_tflops_bf16 = m.matmul_tflops_fp16 = m.matmul_tflops_fp32 = m.matmul_tflops_fp64 = 1;
    m.narrow_efficiency = m.attention_efficiency = m.memory_gb_s = m.host_device_gb_s = m.node_gb_s = m.network_gb_s = 1;
    return m;
  }

  static constexpr std::int64_t kLongestStep = 64;

  const config::RunConfig& config_;
  Plan& plan_;
  const Question& question_;
  MachineFacts facts_;
  RunPlan run_;  ///< with the largest micro-batch, without execution
  parallel::Offload offload_;
  bool graphs_ = false;
  std::int64_t max_micro_batches_ = 1;
};

/// Reads only known facts: asking LibTorch's kernels would create a device context.
Process process_on(c10::Device device) {
  const device::DeviceFacts& facts = device::facts_of(device);
  return {.unified = facts.unified,
          .kernels = device::backend_of(device).part("ops") != nullptr,
          .torch_attention = facts.torch_attention};
}

}  // namespace

Process process_here(const config::RunConfig& config) {
  const auto& p = config.parallel;
  const bool for_gpus =
      p.offload_optimizer == "cpu" || p.offload_param == "cpu" || p.offload_activations == "cpu" || config.training.cuda_graphs;
  if (!config.training.use_cpu) {
    const char* forced = std::getenv("QFT_DEVICE");
    const std::string kind = forced == nullptr ? "auto" : device::parse_device(forced).kind;
    for (const device::BackendEntry& entry : device::load_backends())
      if (entry.count > 0 && (kind == "auto" || kind == entry.name)) return process_on(c10::Device(entry.backend->type(), 0));
    // The planned run may execute elsewhere: a login node has no GPU.
    if (for_gpus || (kind != "auto" && kind != "cpu")) return {};
  }
  device::release_unused();
  return {.on_cpu = true, .bytes = device::memory_use(c10::kCPU).current};
}

Plan make_plan(const config::RunConfig& config, RunPlan run, int ranks, const std::optional<Machine>& machine, Workload workload,
               const Process& here, const Question& question) {
  if (ranks < 1) fail_config("--ranks {}: at least 1", ranks);
  config.check_world(ranks);
  Plan plan;
  plan.run = std::move(run);
  plan.ranks = ranks;
  plan.machine = machine;
  plan.process =
      machine ? Process{machine->is_cpu(), machine->unified, static_cast<std::int64_t>(machine->process_gb * 1e9)} : here;
  plan.available = machine ? machine->memory_of_a_rank(ranks) : 0;
  if (const auto limit = static_cast<std::int64_t>(config.parallel.max_memory * 1e9); limit > 0)
    plan.available = plan.available > 0 ? std::min(plan.available, limit) : limit;
  const auto& objective = plan.run.objective;
  plan.workload = objective.pass_before == parallel::PassBefore::untrained_sequences ? with_estimates(std::move(workload))
                  : objective.pass_before == parallel::PassBefore::trained_sequences ? with_rewards(std::move(workload))
                                                                                     : std::move(workload);
  // With a limit of tokens, a micro-batch of the longest items has one item.
  const auto& t = config.training;
  plan.sequences = objective.item_sequences * (t.max_tokens_per_micro_batch > 0 ? 1 : t.per_device_train_batch_size);
  Planner(config, plan, question).run();
  return plan;
}

}  // namespace qft::plan
