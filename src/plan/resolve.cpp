#include "qft/plan/resolve.h"

#include "qft/config/training_args.h"
#include "qft/core/error.h"
#include "qft/core/units.h"
#include "qft/device/memory.h"
#include "qft/ops/head.h"
#include "qft/optim/rule.h"
#include "qft/parallel/layer_graphs.h"
#include "qft/plan/memory_plan.h"

#include <algorithm>
#include <limits>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace qft::plan {
namespace {

/// Returns optim_args; if empty, the equivalent of LLaMA-Factory's keys.
std::string args_of(const config::TrainingArgs& t, const optim::RuleSpec& rule) {
  if (!t.optim_args.empty()) return t.optim_args;
  if (rule.name == "GaLore") {
    return fmt::format("rank={},update_proj_gap={},scale={},proj_type={}", t.galore_rank, t.galore_update_interval,
                       t.galore_scale, t.galore_proj_type);
  }
  if (rule.name == "APOLLO") {
    return fmt::format("rank={},update_proj_gap={},scale={},proj={},proj_type={},scale_type={},scale_front={}", t.apollo_rank,
                       t.apollo_update_interval, t.apollo_scale, t.apollo_proj, t.apollo_proj_type, t.apollo_scale_type,
                       t.apollo_scale_front);
  }
  return {};
}

/// Returns the hyper-parameters of optim::rule_of(training.optim). Throws ConfigError if optim_args has an argument that the rule
/// does not take.
optim::Hyper hyper_of(const config::TrainingArgs& t) {
  const optim::RuleSpec& rule = optim::rule_of(t.optim);
  optim::Hyper hyper{t.adam_beta1, t.adam_beta2, t.adam_epsilon, t.weight_decay, optim::RuleArgs(args_of(t, rule))};
  hyper.args.require_only(rule.args, rule.name);
  rule.make(hyper);  // checks the values
  return hyper;
}

std::string bytes_text(std::int64_t bytes) {
  return format_bytes(static_cast<double>(bytes));
}

/// Returns the schedules that a run may use, the fastest first: one if its keys decide, several with max_memory.
std::vector<parallel::Schedule> schedules_of(const config::RunConfig& config, parallel::Schedule schedule) {
  schedule.recompute = config.recompute();
  if (config.parallel.max_memory <= 0) return {schedule};
  std::vector<parallel::Schedule> all = {schedule, schedule};
  all.back().head_rows = ops::kMinEfficientRows;
  if (!config.may_choose_recompute()) return all;
  schedule.recompute = false;
  all.insert(all.begin(), schedule);
  return all;
}

/// The sizes of a run's micro-batches, as far as they are unknown before its data is packed.
class FullRows {
 public:
  FullRows(const RunPlan& run, const config::RunConfig& config, int ranks)
      : run_(run), config_(config), data_ranks_(config.data_ranks(ranks)) {}

  std::int64_t tokens() const {
    const std::int64_t limit = run_.training ? config_.training.max_tokens_per_micro_batch : 0;
    return limit > 0 ? std::min(all_tokens(), std::max(limit, item_tokens())) : all_tokens();
  }
  /// Micro-batches of `tokens` tokens of a rank in a step.
  std::int64_t micro_batches(std::int64_t tokens) const {
    const auto& t = config_.training;
    const std::int64_t samples = t.per_device_train_batch_size * data_ranks_;
    const std::int64_t accumulation =
        t.global_batch_size ? (*t.global_batch_size + samples - 1) / samples : t.gradient_accumulation_steps;
    return accumulation * ((all_tokens() + tokens - 1) / tokens);
  }

 private:
  /// Tokens of the longest possible item.
  std::int64_t item_tokens() const { return config_.data.cutoff_len * run_.objective.item_sequences; }
  std::int64_t all_tokens() const {
    const auto& t = config_.training;
    return (run_.training ? t.per_device_train_batch_size : t.per_device_eval_batch_size) * item_tokens();
  }

  const RunPlan& run_;
  const config::RunConfig& config_;
  int data_ranks_;
};

/// Micro-batches of a rank in a step; if the data is unknown, as for full rows.
std::int64_t micro_batches_of(const RunPlan& run, const config::RunConfig& config, const MachineFacts& machine) {
  if (run.micro_batches > 0) return run.micro_batches;
  const FullRows full(run, config, machine.ranks);
  return full.micro_batches(full.tokens());
}

/// Chooses the strategy and the group of a run with known work.
class Resolver {
 public:
  Resolver(RunPlan run, const config::RunConfig& config, const MachineFacts& machine)
      : run_(std::move(run)), config_(config), machine_(machine), asked_(offload_of(config, machine)) {}

  RunPlan resolved() const {
    const bool automatic = config_.parallel.strategy == "auto";
    RunPlan run = automatic ? choose() : evaluated(parallel::strategy_of(config_.parallel.strategy), asked_);
    if (!automatic && !can_start(run)) refuse(run);
    choose_group(run);
    run.sharding.prefetch_budget = prefetch_budget(run, gathered_bytes(run));
    run.process = machine_.process;
    run.available = machine_.available.value_or(0);
    run.diagnostics.memory_advice = memory_advice(run);
    return run;
  }

 private:
  /// Bytes that are needed in any order of micro-batches.
  static std::int64_t least(const MemoryPlan& p) { return p.weights + p.gradients + p.optimizer; }

  /// True if device and host have the memory that every order of micro-batches needs.
  bool can_start(const RunPlan& run) const {
    return (!machine_.available || least(run.footprint.memory) <= *machine_.available) &&
           (machine_.host == 0 || run.footprint.memory.host <= machine_.host);
  }

  RunPlan evaluated(const parallel::Strategy& strategy, const parallel::Offload& offload) const {
    std::int64_t group = run_.training ? std::max<std::int64_t>(1, config_.training.breadth_first_micro_batches) : 1;
    if (run_.micro_batches > 0) group = std::min(group, run_.micro_batches);
    return under_strategy(run_, config_, machine_, strategy, offload, group);
  }

  std::vector<RunPlan> candidates() const {
    std::vector<RunPlan> all;
    const bool deterministic = config_.training.deterministic, graphs = run_.schedule.graphs;
    std::string_view last;
    for (const std::string_view name : automatic_strategies(sharing_ranks(config_, machine_.ranks), deterministic))
      if (const parallel::Strategy& s = parallel::strategy_of(name); s.has_fixed_addresses() || !graphs) {
        all.push_back(evaluated(s, asked_));
        last = name;
      }
    if (!machine_.own_memory || deterministic || graphs) return all;
    parallel::Offload more = asked_;
    more.optimizer = true;
    all.push_back(evaluated(parallel::strategy_of(last), more));
    more.weights = true;
    all.push_back(evaluated(parallel::strategy_of(last), more));
    return all;
  }

  static std::string name_of(const RunPlan& run) {
    const parallel::Offload& offload = run.sharding.offload;
    return fmt::format("{}{}{}", run.sharding.strategy.name, offload.optimizer ? " with the optimizer offloaded" : "",
                       offload.weights ? " and the weights" : "");
  }

  /// "1.20 GB", plus "and 8.40 GB of host memory" if something is offloaded.
  static std::string needs(const RunPlan& run) {
    const std::string host =
        run.sharding.offload.any() ? fmt::format(" and {} of host memory", bytes_text(run.footprint.on_host)) : "";
    return bytes_text(run.footprint.needed) + host;
  }
  /// The memory of a rank.
  std::string has() const {
    return bytes_text(machine_.available.value_or(0)) +
           (machine_.host > 0 ? fmt::format(" and {} of host memory", bytes_text(machine_.host)) : "");
  }

  /// "ddp 2.10 GB, zero2 1.20 GB"
  static std::string list(const std::vector<RunPlan>& all, std::size_t count) {
    std::string text;
    for (std::size_t i = 0; i < count; ++i) text += fmt::format("{}{} {}", i == 0 ? "" : ", ", name_of(all[i]), needs(all[i]));
    return text;
  }

  RunPlan choose() const {
    auto all = candidates();
    for (std::size_t i = 0; i < all.size(); ++i) {
      if (!all[i].fits) continue;
      RunPlan run = all[i];
      run.reason = i == 0 ? fmt::format("{} fits, and no strategy is faster", name_of(run))
                          : fmt::format("{} available to the model, too little for {}", has(), list(all, i));
      return run;
    }
    const std::string numbers = list(all, all.size());
    std::erase_if(all, [&](const RunPlan& run) { return !can_start(run); });
    if (all.empty()) fail_config("no strategy fits into a rank's {}: {}. {}", has(), numbers, advice());
    RunPlan smallest = *std::ranges::min_element(all, {}, [](const RunPlan& run) { return run.footprint.needed; });
    smallest.reason = fmt::format("{} needs the least memory, but the {} available to the model may not be enough; {}",
                                  name_of(smallest), has(), numbers);
    return smallest;
  }

  std::string advice() const {
    const device::HostLimit limit = device::host_memory_limit();
    const bool tight = !machine_.own_memory && !limit.source.empty();
    return fmt::format(
        "Start more ranks (now {}), or lower per_device_train_batch_size ({}) or cutoff_len ({}){}{}", machine_.ranks,
        config_.training.per_device_train_batch_size, config_.data.cutoff_len,
        run_.schedule.graphs ? ", or remove cuda_graphs, which allows ddp and zero1 only" : "",
        tight ? fmt::format(". The job may take {} of a node's memory ({}): ask for more", bytes_text(limit.bytes), limit.source)
              : "");
  }

  [[noreturn]] void refuse(const RunPlan& run) const {
    std::string fitting;
    for (const RunPlan& other : candidates())
      if (other.fits) fitting += fmt::format("{}{} takes {}", fitting.empty() ? "" : ", ", name_of(other), needs(other));
    fail_config("strategy {} needs {} on each rank before the first activation ({}), but a rank has {}: {}. {}", name_of(run),
                bytes_text(least(run.footprint.memory)), describe(run.footprint.memory), has(),
                fitting.empty() ? "no strategy fits on these ranks" : fitting, advice());
  }

  void choose_group(RunPlan& run) const {
    if (!run.training || config_.training.breadth_first_micro_batches > 0) return;
    // If weights are never gathered, breadth-first order costs memory and saves nothing.
    if (run.footprint.memory.gathered == 0) return;
    const std::int64_t most = run.micro_batches > 0 ? run.micro_batches : std::numeric_limits<std::int64_t>::max();
    const std::int64_t group = largest_group(run, machine_, most);
    run.schedule.group = std::min(group, micro_batches_of(run, config_, machine_));
    run.footprint = footprint_of(run);
    run.schedule.group = group;
  }

  /// Returns the three settings that would save most memory.
  std::string memory_advice(const RunPlan& run) const {
    const auto& t = config_.training;
    std::vector<std::string> all;
    const std::string_view strategy = run.sharding.strategy.name;
    if (strategy != "zero3" && sharing_ranks(config_, machine_.ranks) > 1)
      all.push_back(fmt::format("strategy: zero3 instead of {}", strategy));
    if (!run.schedule.recompute) all.emplace_back("gradient_checkpointing: true");
    if (run.schedule.group > 1) all.push_back(fmt::format("breadth_first_micro_batches below {}", run.schedule.group));
    if (t.per_device_train_batch_size > 1)
      all.push_back(fmt::format("per_device_train_batch_size below {}, with a larger gradient_accumulation_steps",
                                t.per_device_train_batch_size));
    all.push_back(fmt::format("cutoff_len below {}", config_.data.cutoff_len));
    if (machine_.ranks % 2 == 0 && run.sharding.tensor_ranks * run.sharding.context_ranks == 1 && !run.schedule.graphs &&
        !t.deterministic)
      all.emplace_back("context_parallel: 2 for long sequences, tensor_parallel: 2 for wide layers (`qft plan` compares them)");
    if (!config_.finetuning.trains_adapter()) all.emplace_back("finetuning_type: lora");
    all.push_back(fmt::format("more ranks than {}, on more nodes, with strategy zero3", machine_.ranks));
    all.emplace_back("fewer ranks on each node");
    all.resize(3);
    return fmt::format("{}", fmt::join(all, "; "));
  }

  RunPlan run_;
  const config::RunConfig& config_;
  const MachineFacts& machine_;
  parallel::Offload asked_;  ///< by the run file
};

}  // namespace

RunPlan plan_of_settings(const config::RunConfig& config, bool training) {
  const auto& t = config.training;
  RunPlan run;
  run.training = training;
  run.decodes = !training || config.eval.predict_with_generate;
  run.rule = &optim::rule_of(t.optim);
  run.hyper = hyper_of(t);
  run.random = {.noise_alpha = t.neftune_noise_alpha, .seed = static_cast<std::uint64_t>(t.seed)};
  run.diagnostics.debug_sync = t.debug_sync;
  run.saving = {.enabled = t.save_strategy != "no", .async = t.async_save, .model_only = t.save_only_model};
  run.sharding.prefetch_budget = config.parallel.prefetch_bytes;
  if (t.deterministic) run.sharding.reduction_order = parallel::ReductionOrder::by_micro_batch;
  return run;
}

std::string precision_warning(const optim::Precision& precision, bool on_cpu) {
  if (!on_cpu || precision.compute != at::kHalf) return {};
  return "fp16 on CPUs is some 40 times slower than bf16, because CPUs have no fast fp16 products: set bf16: true instead of "
         "fp16: true";
}

int sharing_ranks(const config::RunConfig& config, int ranks) {
  return config.data_ranks(ranks) * static_cast<int>(config.parallel.context_parallel);
}

std::string layout_words(const config::RunConfig& config, int ranks) {
  const auto& p = config.parallel;
  return fmt::format("{} = data {} x tensor {} x context {}", count_noun(ranks, "rank"), config.data_ranks(ranks),
                     p.tensor_parallel, p.context_parallel);
}

std::vector<std::string_view> automatic_strategies(int ranks, bool deterministic) {
  if (ranks == 1 || deterministic) return {"ddp"};
  return {"ddp", "zero1", "zero2", "zero3"};
}

RunPlan with_work(RunPlan run, const config::RunConfig& config, const MachineFacts& machine, const Batches& batches) {
  const FullRows full(run, config, machine.ranks);
  run.on_cpu = machine.on_cpu;
  run.kernels = machine.kernels;
  run.schedule.graphs = run.training && config.training.cuda_graphs && machine.records_graphs;
  run.shape = batches.shape;
  if (run.shape.tokens == 0) {
    run.shape.tokens = full.tokens();
    run.shape.expanded = config.unshared_prompts_reason().empty() ? run.shape.tokens : 0;  // pairs may share prompts
  }
  const std::int64_t tokens = run.shape.tokens;
  if (run.schedule.graphs) run.shape.tokens = parallel::padded_tokens(tokens);
  run.micro_batches = batches.max_micro_batches;
  run.evaluation_tokens = batches.evaluation_tokens;
  if (run.training && run.sharding.reduction_order == parallel::ReductionOrder::by_micro_batch)
    run.partial_sums = partial_sums(run.micro_batches > 0 ? run.micro_batches : full.micro_batches(tokens));
  return run;
}

parallel::Offload offload_of(const config::RunConfig& config, const MachineFacts& machine) {
  if (!machine.own_memory) return {};
  const auto& p = config.parallel;
  return {p.offload_optimizer == "cpu", p.offload_param == "cpu", p.offload_activations == "cpu"};
}

parallel::Sharding sharding_of(const config::RunConfig& config, const MachineFacts& machine, const parallel::Strategy& strategy,
                               const parallel::Offload& offload) {
  parallel::Sharding sharding = parallel::make_sharding(strategy, offload, config.data_ranks(machine.ranks), machine.group_ranks,
                                                        config.parallel.data_rank_noun());
  sharding.context_ranks = static_cast<int>(config.parallel.context_parallel);
  sharding.tensor_ranks = static_cast<int>(config.parallel.tensor_parallel);
  return sharding;
}

RunPlan under_strategy(RunPlan run, const config::RunConfig& config, const MachineFacts& machine,
                       const parallel::Strategy& strategy, const parallel::Offload& offload, std::int64_t group) {
  const parallel::Sharding before = run.sharding;
  run.sharding = sharding_of(config, machine, strategy, offload);
  run.sharding.reduction_order = before.reduction_order;
  run.sharding.prefetch_budget = before.prefetch_budget;
  parallel::Schedule schedule = parallel::make_schedule(run.sharding);
  schedule.group = group;
  schedule.reference = run.schedule.reference;
  schedule.graphs = run.schedule.graphs;
  const auto schedules = schedules_of(config, schedule);
  return with_fastest(std::move(run), schedules, machine);
}

RunPlan resolve(RunPlan run, const config::RunConfig& config, const MachineFacts& machine, const Batches& batches) {
  return Resolver(with_work(std::move(run), config, machine, batches), config, machine).resolved();
}

}  // namespace qft::plan
