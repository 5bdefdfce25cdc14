#include "qft/plan/execution_plan.h"

#include "qft/comm/device_communicator.h"
#include "qft/comm/exchange.h"
#include "qft/comm/session.h"
#include "qft/core/error.h"
#include "qft/core/units.h"
#include "qft/device/backends.h"
#include "qft/device/memory.h"
#include "qft/ops/generic.h"
#include "qft/parallel/graph_shape.h"
#include "qft/parallel/layout.h"
#include "qft/plan/feasibility.h"
#include "qft/plan/hyper.h"

#include <algorithm>
#include <limits>
#include <vector>

#include <fmt/ranges.h>

namespace qft::plan {
namespace {

std::string bytes_text(std::int64_t bytes) {
  return format_bytes(static_cast<double>(bytes));
}

/// Traits of the ranks' devices, which may differ. Reduced over the ranks, because all must run one plan.
struct Devices {
  bool own_memory;               ///< every device has its own memory
  bool plain_operations;         ///< some device has no kernels of our own
  ops::AttentionPath attention;  ///< the path that takes most memory

  Devices(c10::Device device, const model::ModelSpec& spec, at::ScalarType compute, comm::Communicator& comm) {
    const auto most = [&](int value) { return comm::all_reduce_value(comm, value, comm::ReduceOp::max); };
    own_memory = most(device::has_own_memory(device) ? 0 : 1) == 0;
    plain_operations = most(ops::generic::runs_generic(device, compute) ? 1 : 0) == 1;
    attention =
        static_cast<ops::AttentionPath>(most(static_cast<int>(ops::attention_path(device, compute, spec.config.head_dim))));
  }
};

/// Returns the offloading that the run file asks for; none if a device's memory is host memory.
parallel::Offload offload_of(const config::RunConfig& config, const Devices& devices) {
  if (!devices.own_memory) return {};
  const auto& p = config.parallel;
  return {p.offload_optimizer == "cpu", p.offload_param == "cpu", p.offload_activations == "cpu"};
}

class ExecutionPlanner {
 public:
  ExecutionPlanner(const config::RunConfig& config, const model::ModelSpec& spec, const optim::Precision& precision,
                   const parallel::ObjectiveTraits& objective, comm::Communicator& comm, c10::Device device, bool training,
                   const Batches& batches, const model::ModelSpec* reference)
      : config_(config),
        spec_(spec),
        precision_(precision),
        objective_(objective),
        comm_(comm),
        device_(device),
        training_(training),
        batches_(batches),
        reference_(reference),
        devices_(device, spec, precision.compute, comm) {
    const int sharers = comm::Session::exists() ? comm::Session::current().sharers_of(device) : 1;
    const std::int64_t left = device::memory_left(device, sharers) - comm::device_group_bytes(device, comm.size());
    available_ = comm::all_reduce_value(comm, std::min(left, allowed()), comm::ReduceOp::min);
    if (devices_.own_memory) {
      const int neighbours = comm::Session::exists() ? comm::Session::current().local_size() : 1;
      on_host_ = comm::all_reduce_value(comm, std::max<std::int64_t>(1, device::memory_left(c10::kCPU, neighbours)),
                                        comm::ReduceOp::min);
    }
    if (const double limit = config.parallel.max_memory * 1e9; limit > 0 && available_ <= 0)
      fail_config("max_memory {} is less than the {} that a process takes before it loads the model: raise it",
                  format_bytes(limit), format_bytes(limit - static_cast<double>(available_)));
  }

  ExecutionPlan run() {
    const bool automatic = config_.parallel.strategy == "auto";
    ExecutionPlan plan =
        automatic ? choose() : evaluated(parallel::strategy_of(config_.parallel.strategy), offload_of(config_, devices_));
    if (!automatic && !can_start(plan)) refuse(plan);
    choose_group(plan);
    return plan;
  }

 private:
  /// Bytes that are needed in any order of micro-batches.
  static std::int64_t least(const MemoryPlan& p) { return p.weights + p.gradients + p.optimizer; }

  /// True if device and host have the memory that every order of micro-batches needs.
  bool can_start(const ExecutionPlan& plan) const {
    return least(plan.footprint.memory) <= available_ && (on_host_ == 0 || plan.footprint.memory.host <= on_host_);
  }

  /// Bytes that max_memory leaves for the model on this rank; below 0 if the process already uses more.
  std::int64_t allowed() const {
    const double limit = config_.parallel.max_memory * 1e9;
    if (limit <= 0) return std::numeric_limits<std::int64_t>::max();
    return static_cast<std::int64_t>(limit) - device::memory_use(device_).current;
  }

  ExecutionConfig execution_config(const parallel::Strategy& strategy, const parallel::Offload& offload, std::int64_t group,
                                   const MemoryPolicy& policy) const {
    const auto degrees = parallel::degrees_of(comm_, strategy, config_.parallel.hsdp_group_size);
    return {.spec = spec_,
            .precision = precision_,
            .rule = optim::rule_of(config_.training.optim),
            .strategy = parallel::with_offload(strategy, offload),
            .offload = offload,
            .shard_ranks = degrees.shard,
            .replicas = degrees.replicate,
            .training = training_,
            .recompute = policy.recompute,
            .lora_dropout = spec_.adapter.lora.dropout > 0.0,
            .shape = shape(),
            .group = group,
            .micro_batches = batches_.max_micro_batches,
            .evaluation_tokens = batches_.evaluation_tokens,
            .prefetch_budget = config_.parallel.prefetch_bytes,
            .partial_sums = partial_sums(),
            .head_rows = policy.head_rows,
            .graphs = graphs(),
            .on_cpu = device_.is_cpu(),
            .attention = devices_.attention,
            .plain_operations = devices_.plain_operations,
            .objective = training_ ? objective_.kind : parallel::ObjectiveKind::row_local,
            .reference = objective_.reference,
            .reference_rows = objective_.reference_rows,
            .reference_model = reference_,
            .hyper = hyper_of(config_.training)};
  }

  BatchShape shape() const {
    BatchShape shape = batches_.shape;
    if (shape.tokens == 0) shape.expanded = config_.unshared_prompts_reason().empty() ? tokens() : 0;  // pairs may share prompts
    shape.tokens = graphs() ? parallel::padded_tokens(tokens()) : tokens();
    return shape;
  }
  bool graphs() const { return training_ && config_.training.cuda_graphs && device::records_graphs(device_); }

  /// Micro-batches of a rank in a step; if the data is unknown, as for full rows.
  std::int64_t micro_batches() const {
    if (batches_.max_micro_batches > 0) return batches_.max_micro_batches;
    const auto& t = config_.training;
    const std::int64_t samples = t.per_device_train_batch_size * comm_.size();
    const std::int64_t accumulation =
        t.global_batch_size ? (*t.global_batch_size + samples - 1) / samples : t.gradient_accumulation_steps;
    return accumulation * ((full_tokens() + tokens() - 1) / tokens());
  }
  std::int64_t partial_sums() const {
    if (!training_ || !config_.training.deterministic) return 0;
    return plan::partial_sums(micro_batches());
  }

  /// Tokens of the longest possible item.
  std::int64_t item_tokens() const { return config_.data.cutoff_len * objective_.item_sequences; }

  /// Tokens of a micro-batch of full rows.
  std::int64_t full_tokens() const {
    const auto& t = config_.training;
    return (training_ ? t.per_device_train_batch_size : t.per_device_eval_batch_size) * item_tokens();
  }
  std::int64_t tokens() const {
    if (batches_.shape.tokens > 0) return batches_.shape.tokens;
    const std::int64_t limit = training_ ? config_.training.max_tokens_per_micro_batch : 0;
    return limit > 0 ? std::min(full_tokens(), std::max(limit, item_tokens())) : full_tokens();
  }

  /// Memory for the model itself. If the device uses host memory, checkpoint copies are subtracted here; on the CPU the footprint
  /// counts them.
  AvailableMemory room(const ExecutionConfig& run) const {
    const bool apart = device_.is_cpu() || devices_.own_memory;
    return {std::max<std::int64_t>(1, apart ? available_ : available_ - footprint_of(run, config_).staged), on_host_};
  }

  ExecutionPlan evaluated(const parallel::Strategy& strategy, const parallel::Offload& offload) const {
    std::int64_t group = training_ ? std::max<std::int64_t>(1, config_.training.breadth_first_micro_batches) : 1;
    if (batches_.max_micro_batches > 0) group = std::min(group, batches_.max_micro_batches);
    const auto config_with = [&](const MemoryPolicy& policy) { return execution_config(strategy, offload, group, policy); };
    const PolicyFit fit = fastest_that_fits(config_, room(config_with({})), config_with);
    ExecutionPlan plan{strategy, offload,    group, config_.parallel.prefetch_bytes, fit.policy, fit.footprint,
                       fit.fits, available_, {}};
    if (plan.prefetch_budget == 0) plan.prefetch_budget = default_prefetch_budget(spec_, gathered_bytes(config_with(fit.policy)));
    return plan;
  }

  std::vector<ExecutionPlan> candidates() const {
    std::vector<ExecutionPlan> all;
    const parallel::Offload asked = offload_of(config_, devices_);
    for (const std::string_view name : automatic_strategies(comm_.size(), config_.training.deterministic))
      if (const parallel::Strategy& s = parallel::strategy_of(name); s.has_fixed_addresses() || !graphs())
        all.push_back(evaluated(s, asked));
    if (!devices_.own_memory || config_.training.deterministic || graphs()) return all;
    const parallel::Strategy last = all.back().strategy;
    parallel::Offload more = asked;
    more.optimizer = true;
    all.push_back(evaluated(last, more));
    more.weights = true;
    all.push_back(evaluated(last, more));
    return all;
  }

  static std::string name_of(const ExecutionPlan& plan) {
    return fmt::format("{}{}{}", plan.strategy.name, plan.offload.optimizer ? " with the optimizer offloaded" : "",
                       plan.offload.weights ? " and the weights" : "");
  }

  /// "1.20 GB", plus "and 8.40 GB of host memory" if something is offloaded.
  static std::string needs(const ExecutionPlan& plan) {
    const std::string host = plan.offload.any() ? fmt::format(" and {} of host memory", bytes_text(plan.footprint.on_host)) : "";
    return bytes_text(plan.footprint.needed) + host;
  }
  /// The memory of a rank.
  std::string has() const {
    return bytes_text(available_) + (on_host_ > 0 ? fmt::format(" and {} of host memory", bytes_text(on_host_)) : "");
  }

  /// "ddp 2.10 GB, zero2 1.20 GB"
  static std::string list(const std::vector<ExecutionPlan>& all, std::size_t count) {
    std::string text;
    for (std::size_t i = 0; i < count; ++i) text += fmt::format("{}{} {}", i == 0 ? "" : ", ", name_of(all[i]), needs(all[i]));
    return text;
  }

  ExecutionPlan choose() const {
    auto all = candidates();
    for (std::size_t i = 0; i < all.size(); ++i) {
      if (!all[i].fits) continue;
      ExecutionPlan plan = all[i];
      plan.reason = i == 0 ? fmt::format("{} fits, and no strategy is faster", name_of(plan))
                           : fmt::format("{} available to the model, too little for {}", has(), list(all, i));
      return plan;
    }
    const std::string numbers = list(all, all.size());
    std::erase_if(all, [&](const ExecutionPlan& p) { return !can_start(p); });
    if (all.empty()) fail_config("no strategy fits into a rank's {}: {}. {}", has(), numbers, advice());
    ExecutionPlan smallest = *std::ranges::min_element(all, {}, [](const ExecutionPlan& p) { return p.footprint.needed; });
    smallest.reason = fmt::format("{} needs the least memory, but the {} available to the model may not be enough; {}",
                                  name_of(smallest), has(), numbers);
    return smallest;
  }

  std::string advice() const {
    const device::HostLimit limit = device::host_memory_limit();
    const bool tight = !devices_.own_memory && !limit.source.empty();
    return fmt::format(
        "Start more ranks (now {}), or lower per_device_train_batch_size ({}) or cutoff_len ({}){}{}", comm_.size(),
        config_.training.per_device_train_batch_size, config_.data.cutoff_len,
        graphs() ? ", or remove cuda_graphs, which allows ddp and zero1 only" : "",
        tight ? fmt::format(". The job may take {} of a node's memory ({}): ask for more", bytes_text(limit.bytes), limit.source)
              : "");
  }

  [[noreturn]] void refuse(const ExecutionPlan& plan) const {
    std::string fitting;
    for (const ExecutionPlan& other : candidates())
      if (other.fits) fitting += fmt::format("{}{} takes {}", fitting.empty() ? "" : ", ", name_of(other), needs(other));
    fail_config("strategy {} needs {} on each rank before the first activation ({}), but a rank has {}: {}. {}", name_of(plan),
                bytes_text(least(plan.footprint.memory)), describe(plan.footprint.memory), has(),
                fitting.empty() ? "no strategy fits on these ranks" : fitting, advice());
  }

  void choose_group(ExecutionPlan& plan) const {
    if (!training_ || config_.training.breadth_first_micro_batches > 0) return;
    // If weights are never gathered, breadth-first order costs memory and saves nothing.
    if (plan.footprint.memory.gathered == 0) return;
    const auto config_with = [&](std::int64_t group) {
      return execution_config(plan.strategy, plan.offload, group, plan.policy);
    };
    const std::int64_t most =
        batches_.max_micro_batches > 0 ? batches_.max_micro_batches : std::numeric_limits<std::int64_t>::max();
    plan.group = largest_group(config_with(1), plan.footprint, room(config_with(1)).device, most);
    plan.footprint = footprint_of(config_with(std::min(plan.group, micro_batches())), config_);
  }

  const config::RunConfig& config_;
  const model::ModelSpec& spec_;
  const optim::Precision& precision_;
  const parallel::ObjectiveTraits& objective_;
  comm::Communicator& comm_;
  c10::Device device_;
  bool training_;
  Batches batches_;
  const model::ModelSpec* reference_;  ///< spec of a reference with its own weights
  Devices devices_;
  std::int64_t available_ = 0;
  std::int64_t on_host_ = 0;  ///< host memory per rank besides a device with its own memory; 0: not needed
};

}  // namespace

std::string precision_warning(const optim::Precision& precision, bool on_cpu) {
  if (!on_cpu || precision.compute != at::kHalf) return {};
  return "fp16 on CPUs is some 40 times slower than bf16, because CPUs have no fast fp16 products: set bf16: true instead of "
         "fp16: true";
}

std::vector<std::string_view> automatic_strategies(int ranks, bool deterministic) {
  if (ranks == 1 || deterministic) return {"ddp"};
  return {"ddp", "zero1", "zero2", "zero3"};
}

std::string memory_advice(const config::RunConfig& config, const ExecutionPlan& plan, int ranks) {
  const auto& t = config.training;
  std::vector<std::string> all;
  if (plan.strategy.name != "zero3" && ranks > 1) all.push_back(fmt::format("strategy: zero3 instead of {}", plan.strategy.name));
  if (!plan.policy.recompute) all.emplace_back("gradient_checkpointing: true");
  if (plan.group > 1) all.push_back(fmt::format("breadth_first_micro_batches below {}", plan.group));
  if (t.per_device_train_batch_size > 1)
    all.push_back(fmt::format("per_device_train_batch_size below {}, with a larger gradient_accumulation_steps",
                              t.per_device_train_batch_size));
  all.push_back(fmt::format("cutoff_len below {}", config.data.cutoff_len));
  if (!config.finetuning.trains_adapter()) all.emplace_back("finetuning_type: lora");
  all.push_back(fmt::format("more ranks than {}, on more nodes, with strategy zero3", ranks));
  all.emplace_back("fewer ranks on each node");
  all.resize(3);
  return fmt::format("{}", fmt::join(all, "; "));
}

ExecutionPlan plan_execution(const config::RunConfig& config, const model::ModelSpec& spec, const optim::Precision& precision,
                             const parallel::ObjectiveTraits& objective, comm::Communicator& comm, c10::Device device,
                             bool training, const Batches& batches, const model::ModelSpec* reference) {
  return ExecutionPlanner(config, spec, precision, objective, comm, device, training, batches, reference).run();
}

}  // namespace qft::plan
