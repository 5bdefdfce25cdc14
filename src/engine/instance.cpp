#include "qft/engine/instance.h"

#include "qft/comm/exchange.h"
#include "qft/core/convert.h"
#include "qft/core/error.h"
#include "qft/core/log.h"
#include "qft/device/backends.h"
#include "qft/device/device.h"
#include "qft/device/memory.h"
#include "qft/device/scalar_type.h"
#include "qft/device/upload.h"
#include "qft/engine/objectives.h"
#include "qft/engine/reference.h"
#include "qft/model/merge.h"
#include "qft/model/pissa.h"
#include "qft/plan/execution_plan.h"
#include "qft/plan/feasibility.h"
#include "qft/plan/hyper.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <memory>
#include <optional>
#include <utility>

#include "pissa_start.h"
#include <ATen/ops/empty.h>
#include <fmt/ranges.h>

namespace qft::engine {
namespace {

/// Returns the part of a parameter's box that lies in `flat`, a part of its unit's buffer.
model::Shard shard_of(const model::ParamSpec& p, const model::Shard& flat) {
  const std::int64_t first = std::max(p.offset, flat.begin), last = std::min(p.offset + p.numel, flat.end());
  if (first >= last) return {flat.values.narrow(0, 0, 0), 0};
  return {flat.values.narrow(0, first - flat.begin, last - first), first - p.offset};
}

/// True if layers run as CUDA graphs; throws ConfigError if the run asks for graphs but cannot have them.
bool graphs_of(const config::RunConfig& config, const model::ModelSpec& spec, const optim::Precision& precision,
               const parallel::Strategy& strategy, c10::Device device) {
  if (!config.training.cuda_graphs || !device::records_graphs(device)) return false;
  if (!strategy.has_fixed_addresses())
    fail_config(
        "cuda_graphs needs weights and gradients at fixed addresses, but strategy {} runs, which shards them: use ddp or zero1, "
        "or remove cuda_graphs",
        strategy.name);
  if (spec.config.rope.dynamic)
    fail_config(
        "cuda_graphs replays layers with one table of angles, but the model's rope scaling is dynamic: remove cuda_graphs");
  const bool bf16_has_flash = precision.compute == at::kFloat && device::facts_of(device).bf16 &&
                              ops::planned_attention_path(at::kBFloat16, spec.config.head_dim) == ops::AttentionPath::flash;
  for (const model::Layer& layer : spec.layers)
    for (const model::SubLayerSpec& sublayer : layer)
      if (!model::make_sublayer(spec.config, sublayer)->can_be_captured(device, precision.compute))
        fail_config(
            "cuda_graphs needs flash attention, which LibTorch does not have for {} and heads of {} on {} (its other kernels "
            "copy each sequence, and a graph cannot follow changing lengths): {}remove cuda_graphs",
            c10::toString(precision.compute), spec.config.head_dim, device::describe(device),
            bf16_has_flash ? "set bf16: true, or " : "");
  return true;
}

bool has_bf16(c10::Device device) {
  return device.is_cpu() || device::facts_of(device).bf16;
}

/// Returns `types` if the devices of all ranks support them (`all_bf16`). If a device lacks bf16: replaces bf16 by fp32 on all
/// ranks if only the model's files asked for bf16; if a key asks for bf16, the ranks without it throw ConfigError.
InferencePrecision supported_types(InferencePrecision types, const config::RunConfig& config, Use use, c10::Device device,
                                   bool all_bf16) {
  if (types.precision.compute != at::kBFloat16 || all_bf16) return types;
  const auto& t = config.training;
  const bool by_name = use == Use::inference && dtype_from_torch(config.model.infer_dtype).has_value();
  if (!by_name && config.compute_dtype() != DType::bf16)
    return {optim::Precision::fp32(), fmt::format("{}, in bfloat16, which {} does not support", types.reason,
                                                  has_bf16(device) ? "another rank's device" : "this device")};
  if (has_bf16(device)) return types;
  const char* key = by_name ? "infer_dtype" : t.pure_bf16 ? "pure_bf16" : t.bf16 ? "bf16" : "compute_dtype";
  const auto given = config.given.find(key);
  fail_config("{}{} asks for bf16, which this device does not support ({}): set {} instead",
              given == config.given.end() ? "" : given->second + ": ", key, device::describe(device),
              by_name ? "infer_dtype: float16" : "fp16: true");
}

std::string head_names(const model::Head& head) {
  return head.classifies ? fmt::format("tensor {}", model::kScore)
                         : fmt::format("{} (nor {})", io::kValueHeadFiles[0], io::kValueHeadFiles[1]);
}

/// Training may start from a new head.
void require_value_head(const config::RunConfig& config, const model::ModelSpec& spec, const io::ModelFiles& files, Use use) {
  if (const auto file = head_file(config, spec, files); !file.path.empty()) return model::require_value_head(spec, file);
  if (use == Use::training) return;
  const auto& [adapters, model] = std::pair(config.model.adapter_name_or_path, config.model.model_name_or_path);
  fail_config("'{}' has no {}: it is not a {}; set {} to an output_dir of stage {}, or set another stage",
              adapters.empty() ? model : adapters.back(), head_names(spec.head),
              spec.head.classifies ? "classifier" : "reward model",
              adapters.empty() ? "adapter_name_or_path or model_name_or_path" : "adapter_name_or_path", config.finetuning.stage);
}

/// What is known before the weights are allocated.
struct LoadPlan {
  model::ModelSpec spec;
  std::optional<io::ModelFiles> files;
  InferencePrecision types;  ///< in training the reason is a note for the user, or empty
  plan::ExecutionPlan plan;
  bool lane = false;    ///< action lists have a reference lane
  bool graphs = false;  ///< layers run as CUDA graphs
  MemoryPrediction memory;
};

LoadPlan load_plan_of(const config::RunConfig& config, comm::Communicator& comm, c10::Device device, Use use,
                      const plan::Batches& batches) {
  LoadPlan b;
  const bool training = use == Use::training;
  const bool all_bf16 = comm::all_reduce_value(comm, has_bf16(device) ? 1 : 0, comm::ReduceOp::min) == 1;
  // If one rank cannot see a directory, all ranks must end, with that rank's reason.
  comm::agreed(comm, [&] {
    b.spec = spec_of(config, use);
    b.files = io::ModelFiles::open(config.model_path());
    const Adapters adapters = adapters_of(config, use);
    model::merge_adapters(*b.files, model::ModelConfig::load(config.model_path()), adapters.merged);
    model::require_base_weights(b.spec, *b.files);
    if (!adapters.live.empty()) model::require_adapter(b.spec, adapters.live);
    if (b.spec.head.of_sequences()) require_value_head(config, b.spec, *b.files, use);
    b.types = training ? InferencePrecision{training_precision(config), fp32_notice(config, *b.files)}
                       : inference_precision(config, *b.files);
    b.types = supported_types(std::move(b.types), config, use, device, all_bf16);
  });
  if (training)
    if (const std::string warning = plan::precision_warning(b.types.precision, device.is_cpu()); !warning.empty())
      log::warn_once(warning);
  device::release_unused();  // frees what packing and the tokenizer took
  const std::int64_t before = device::memory_use(device).current;
  parallel::ObjectiveTraits objective = traits_of(config);
  b.lane = has_reference_lane(config, b.spec, use);
  objective.reference = b.lane;
  std::optional<model::ModelSpec> reference;
  if (training)
    comm::agreed(comm, [&] {
      reference = reference_spec(config, b.spec, use);
      if (reference) require_shareable_prompts(config, reference->config.rope);
    });
  b.plan = plan::plan_execution(config, b.spec, b.types.precision, objective, comm, device, training, batches,
                                reference ? &*reference : nullptr);
  if (training) comm::agreed(comm, [&] { b.graphs = graphs_of(config, b.spec, b.types.precision, b.plan.strategy, device); });
  const plan::ExecutionPlan& plan = b.plan;
  const std::int64_t kernels =
      device.is_cpu() ? device::raise_kernel_cache_limit(plan::kernel_sets(b.spec, b.types.precision, plan.group)) : 0;
  b.memory = {plan.footprint.memory, before, kernels, device.is_cpu() ? plan.footprint.staged : 0, plan.available, plan.reason};
  return b;
}

}  // namespace

InstancePreview Instance::preview(const config::RunConfig& config, comm::Communicator& comm, c10::Device device, Use use,
                                  const plan::Batches& batches) {
  LoadPlan b = load_plan_of(config, comm, device, use, batches);
  const parallel::Layout layout(comm, device, b.plan.strategy, config.parallel.hsdp_group_size, b.plan.offload);
  return {std::move(b.spec), b.types.precision, std::move(b.memory), layout.describe()};
}

std::unique_ptr<Instance> Instance::build(InstanceOptions options, comm::Communicator& comm, c10::Device device, Use use) {
  std::unique_ptr<Instance> self(new Instance(std::move(options)));
  Instance& m = *self;
  const InstanceOptions& d = m.options_;
  const bool training = use == Use::training;
  m.transformer_ = std::make_unique<model::Transformer>(d.spec, d.precision.compute, device);
  m.transformer_->set_logit_rows(d.head_rows);
  m.layout_ = std::make_unique<parallel::Layout>(comm, device, d.strategy, d.hsdp_group_size, d.offload);
  const parallel::Layout& layout = *m.layout_;
  for (model::UnitSpec& unit : m.options_.spec.units)
    for (model::ParamSpec& p : unit.params) p.first_holder = parallel::is_first_holder(p, layout.mesh());
  m.store_ = layout.strategy().sharded()
                 ? parallel::make_sharded_store(d.spec, d.precision, device, layout.strategy(), layout.offload(), layout.shard(),
                                                layout.replicate(), training)
                 : parallel::make_replicated_store(d.spec, d.precision, device, layout.replicate(), training, d.reduction_order,
                                                   d.bucket_bytes);
  m.optimizer_index_.assign(d.spec.units.size(), -1);
  if (training) {
    int next = 0;
    for (std::size_t u = 0; u < d.spec.units.size(); ++u)
      if (d.spec.units[u].trainable_numel > 0) m.optimizer_index_[u] = next++;
    m.optimizer_ = std::make_unique<optim::Optimizer>(*d.rule, m.store_->owned(), d.hyper, d.precision,
                                                      layout.strategy().sharded() ? &m.layout_->shard() : nullptr);
  }
  m.executor_ = std::make_unique<parallel::Executor>(*m.transformer_, *m.store_, comm, d.executor);
  return self;
}

namespace {

InstanceOptions options_of(const config::RunConfig& config, LoadPlan& load_plan, const comm::Communicator& comm, bool training) {
  const auto& t = config.training;
  const plan::ExecutionPlan& plan = load_plan.plan;
  const optim::Precision& precision = load_plan.types.precision;
  const double dropout = training ? load_plan.spec.adapter.lora.dropout : 0.0;
  return {.spec = std::move(load_plan.spec),
          .precision = precision,
          .strategy = plan.strategy,
          .hsdp_group_size = config.parallel.hsdp_group_size,
          .offload = plan.offload,
          .group = plan.group,
          .prefetch_budget = plan.prefetch_budget,
          .head_rows = plan.policy.head_rows,
          .reference = load_plan.lane,
          .reduction_order = t.deterministic ? parallel::ReductionOrder::by_micro_batch : parallel::ReductionOrder::as_ready,
          .rule = &optim::rule_of(t.optim),
          .hyper = plan::hyper_of(t),
          .executor = {plan.policy.recompute, plan.offload.activations, dropout, t.neftune_noise_alpha,
                       static_cast<std::uint64_t>(t.seed), plan::memory_advice(config, plan, comm.size()), t.debug_sync,
                       load_plan.graphs}};
}

void load_value_head(const config::RunConfig& config, const model::ModelSpec& spec, const io::ModelFiles& files,
                     const model::ParamAccess& access) {
  const char* what = spec.head.classifies ? "classifier's head" : "value head";
  if (const auto file = head_file(config, spec, files); !file.path.empty()) {
    log::info("{}: '{}'", what, file.path.string());
    return model::load_value_head(spec, file, access);
  }
  log::info("{}: starts random (there is no {} {} the model or its adapter)", what,
            spec.head.classifies ? model::kScore : io::kValueHeadFiles[0], spec.head.classifies ? "in" : "beside");
  model::init_value_head(spec, static_cast<std::uint64_t>(config.training.seed), access);
}

/// Warns of unused tensors, counted by name prefix.
void warn_of_unused(const model::ModelSpec& spec, const std::vector<std::string>& names) {
  std::vector<std::string> words;
  for (const std::string& prefix : spec.config.other_prefixes)
    if (const auto count = std::ranges::count_if(names, [&](const std::string& name) { return name.starts_with(prefix); });
        count > 0)
      words.push_back(fmt::format("{} {}", count, prefix));
  if (words.empty()) return;
  log::warn_once(fmt::format(
      "the model's files have tensors that are not used ({}): vision (model.visual.), multi-token prediction "
      "(mtp.), or the lm_head of a reward model or classifier; models that this run writes and exports of it keep them "
      "unchanged, except a classifier's lm_head",
      fmt::join(words, ", ")));
}

/// Loads the base model's weights, then reads or initialises the adapter's. Returns the bytes read.
std::int64_t load_weights(const config::RunConfig& config, Use use, const io::ModelFiles& files, Instance& instance,
                          const io::TensorFile* initial) {
  const model::ModelSpec& spec = instance.spec();
  const auto access = [&](int unit, const model::ParamSpec& p) { return instance.param(unit, p); };
  const std::int64_t bytes = model::load_base_weights(spec, files, access);
  warn_of_unused(spec, files.names());
  if (const auto adapter = adapters_of(config, use).live; !adapter.empty())
    model::load_adapter(spec, adapter, access);
  else if (initial != nullptr)
    model::load_initial_factors(spec, *initial, access);
  else if (spec.adapter.enabled())
    model::init_adapter(spec, static_cast<std::uint64_t>(config.training.seed), access);
  if (spec.head.of_sequences()) load_value_head(config, spec, files, access);
  return bytes;
}

}  // namespace

void Instance::init_magnitudes() {
  settle();
  for (int u = 0; u < spec().num_units(); ++u) {
    const model::UnitSpec& unit = spec().units[static_cast<std::size_t>(u)];
    if (unit.derived_numel == 0) continue;
    const at::Tensor scales = store_->acquire(u).derived;
    for (const model::ParamSpec& p : unit.params)
      if (p.role == model::Role::magnitude) model::init_magnitude(p, scales, param(u, p));
    store_->release(u);
  }
  publish();
}

std::unique_ptr<Instance> Instance::load(const config::RunConfig& config, comm::Communicator& comm, c10::Device device, Use use,
                                         const plan::Batches& batches, const std::filesystem::path& resumed) {
  const auto start = std::chrono::steady_clock::now();
  LoadPlan load_plan = load_plan_of(config, comm, device, use, batches);
  auto self = build(options_of(config, load_plan, comm, use == Use::training), comm, device, use);
  const parallel::Offload& offload = self->layout().offload();
  if (config.training.debug_sync && !device.is_cpu() && (offload.optimizer || offload.weights))
    fail_config(
        "debug_sync cannot be combined with offloading, which waits for copies to host memory, but {} runs: choose a strategy "
        "without offloading, or remove debug_sync",
        self->layout().describe());
  if (config.training.debug_sync && !device.is_cpu() && self->spec().config.experts.count > 0)
    fail_config(
        "debug_sync cannot be combined with experts: the host waits for each router to distribute the rows; remove debug_sync");
  self->precision_reason_ = std::move(load_plan.types.reason);
  self->memory_ = std::move(load_plan.memory);
  std::optional<PissaStart> pissa;
  if (self->spec().adapter.lora.pissa) pissa.emplace(config, self->spec(), *load_plan.files, resumed, comm);
  comm::agreed(comm, [&] {
    std::shared_ptr<const io::TensorFile> initial;
    if (pissa) {
      initial = pissa->open();
      model::subtract_initial_factors(*load_plan.files, self->spec(), pissa->open());
    }
    self->report_.bytes_read = load_weights(config, use, *load_plan.files, *self, initial.get());
    if (comm.rank() == 0) self->initial_factors_ = std::move(initial);
  });
  const auto packed = [&](int unit) { return self->store_->resident_shard(unit, model::Part::quantized); };
  self->report_.bytes_read += model::load_quantized_weights(self->spec(), *load_plan.files, packed, comm);
  self->publish();
  if (self->spec().adapter.lora.dora && adapters_of(config, use).live.empty()) self->init_magnitudes();
  self->report_.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return self;
}

model::MicroInput Instance::input(const loader::MicroBatch& batch) const {
  model::MicroInput in = model::MicroInput::build(batch.tokens, batch.cu_seqlens, batch.label_positions, batch.samples,
                                                  transformer_->device(), batch.item_offsets, batch.shared);
  in.set_columns(batch.columns);
  if (optimizer_)
    in.routing = model::Routing::build(spec().config, in.sequences, transformer_->statistics_dtype(), transformer_->device());
  return in;
}

parallel::ActionList Instance::training_list(int micro_batches, int max_micro_batches, double seconds) const {
  const parallel::Strategy& s = layout_->strategy();
  const int group = static_cast<int>(std::clamp<std::int64_t>(options_.group, 1, std::max(1, max_micro_batches)));
  const int votes = parallel::groups_per_vote(seconds, (max_micro_batches + group - 1) / group);
  const bool reduce_every_group = s.reduce_every_group() || options_.reduction_order == parallel::ReductionOrder::by_micro_batch;
  return parallel::insert_prefetches(
      parallel::training_schedule(spec(), {micro_batches, max_micro_batches, group, reduce_every_group, s.reshard_after_forward,
                                           votes, options_.reference}),
      store_->gathered_bytes(), options_.prefetch_budget);
}

parallel::ActionList Instance::evaluation_list(int micro_batches, int max_micro_batches) const {
  const int all = std::max(1, max_micro_batches);
  return parallel::insert_prefetches(
      parallel::evaluation_schedule(
          spec(), {.micro_batches = micro_batches,
                   .max_micro_batches = max_micro_batches,
                   .group = optimizer_ ? static_cast<int>(std::clamp<std::int64_t>(options_.group, 1, all)) : all,
                   .reference = options_.reference}),
      store_->gathered_bytes(), options_.prefetch_budget);
}

void Instance::update(double learning_rate, double grad_scale) {
  executor_->without_waits([] { return std::string("the optimizer"); },
                           [&] {
                             optimizer_->step(learning_rate, grad_scale);
                             store_->broadcast_updates();
                           });
}

model::Shard Instance::param(int unit, const model::ParamSpec& param) const {
  QFT_ASSERT(!param.is_quantized(), "'{}' is quantised: its elements exist only during use", param.name);
  const int index = optimizer_index_.at(static_cast<std::size_t>(unit));
  if (!param.trainable || index < 0) return shard_of(param, store_->resident_shard(unit, param.part()));
  const auto i = static_cast<std::size_t>(index);
  return shard_of(param, {optimizer_->master(i), optimizer_->begin(i)});
}

std::vector<optim::HeldState> Instance::states(int unit, const model::ParamSpec& param) const {
  const int index = optimizer_index_.at(static_cast<std::size_t>(unit));
  QFT_ASSERT(index >= 0 && param.trainable, "'{}' has no optimizer state", param.name);
  return optimizer_->held_states(static_cast<std::size_t>(index), param.offset);
}

void Instance::settle() {
  store_->settle();
}

void Instance::publish() {
  if (optimizer_) optimizer_->refresh_copies();
  store_->broadcast_updates();
}

at::Tensor Instance::master_buffer() const {
  comm::Communicator& shard = layout_->shard();
  std::int64_t largest = 0;
  for (const int i : optimizer_index_)
    if (i >= 0) largest = std::max(largest, optimizer_->master(static_cast<std::size_t>(i)).numel() * shard.size());
  if (shard.size() == 1 || largest == 0) return {};
  return at::empty({largest}, optimizer_->master(0).options());
}

at::Tensor Instance::whole_master(int unit, const at::Tensor& room) const {
  const auto i = static_cast<std::size_t>(optimizer_index_.at(static_cast<std::size_t>(unit)));
  const at::Tensor mine = optimizer_->master(i);
  comm::Communicator& shard = layout_->shard();
  if (shard.size() == 1) return mine;
  const at::Tensor whole = room.defined() ? room : at::empty({mine.numel() * shard.size()}, mine.options());
  QFT_ASSERT(whole.numel() >= mine.numel() * shard.size(), "room for {} elements", whole.numel());
  comm::Communicator& group = mine.is_cpu() ? shard.host() : shard;  // offloaded masters are in host memory
  group.all_gather(mine.data_ptr(), whole.data_ptr(), static_cast<std::size_t>(mine.numel()),
                   device::dtype_of(mine.scalar_type()));
  return whole.narrow(0, 0, spec().units[static_cast<std::size_t>(unit)].trainable_numel);
}

}  // namespace qft::engine
