#include "qft/engine/run_plan.h"

#include "qft/comm/exchange.h"
#include "qft/config/bound_field.h"
#include "qft/core/error.h"
#include "qft/core/log.h"
#include "qft/core/units.h"
#include "qft/device/backends.h"
#include "qft/device/device.h"
#include "qft/device/memory.h"
#include "qft/engine/objectives.h"
#include "qft/engine/precision.h"
#include "qft/engine/reference.h"
#include "qft/model/classifier.h"
#include "qft/model/degree_error.h"
#include "qft/model/load.h"
#include "qft/model/merge.h"
#include "qft/model/pissa.h"
#include "qft/model/sentence_files.h"
#include "qft/model/spec.h"
#include "qft/plan/feasibility.h"
#include "qft/tokenizer/tokenizer.h"

#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "adapter_choice.h"
#include "embedding.h"
#include "sentence_modules.h"
#include <fmt/ranges.h>

namespace qft::engine {
namespace {

model::FreezeConfig freeze_of(const config::FinetuningArgs& f, std::int64_t layers) {
  return {f.use_llama_pro ? model::FreezeConfig::expanded_layers(f.freeze_trainable_layers, layers)
                          : model::FreezeConfig::last_layers(f.freeze_trainable_layers, layers),
          f.freeze_trainable_modules, f.freeze_extra_modules};
}

/// LoRA+ (Hayou et al. 2024): sets the learning rate ratio of B and of vectors to A, grouped as PEFT and LLaMA-Factory do.
void set_rates(model::ModelSpec& spec, double ratio) {
  for (model::UnitSpec& unit : spec.units)
    for (model::ParamSpec& p : unit.params)
      if (p.trainable && (p.role == model::Role::lora_b || p.shape.size() == 1)) p.lr_factor = ratio;
}

/// Throws ConfigError if the run file names a module or parameter that the model lacks. PEFT would ignore it silently.
void require_targets(const config::RunConfig& config, const model::ModelSpec& spec) {
  const auto& f = config.finetuning;
  if (spec.adapter.targets().target_pattern.empty()) {
    const std::vector<std::string> modules = model::lora_modules(spec.config);
    const model::AdapterTargets& targets = spec.adapter.targets();
    for (const std::string& name : spec.adapter.oft.enabled() ? f.oft_target : f.lora_target)
      if (name != "all" && std::ranges::find(targets.targets, name) == targets.targets.end())
        fail_config("{} '{}' is not a linear module of this {}: use all, or some of {}", targets.key, name,
                    spec.config.model_type, fmt::join(modules, ", "));
  }
  spec.require_adapter_targets();
  if (spec.adapter.lora.pissa) model::require_pissa(spec);
  if (!spec.adapter.lora.enabled()) return;
  for (const std::string& name : f.lora_target_parameters) {
    model::LoraConfig one;
    one.target_parameters = {name};
    bool found = false;
    for (const model::Layer& layer : spec.layers)
      for (const model::SubLayerSpec& sublayer : layer)
        for (const model::ParamGroup& group : sublayer.params)
          found = found || (group.is_stack() && one.targets_parameter(group.stack));
    if (!found)
      fail_config("lora_target_parameters '{}' is not a parameter of this {}: {}", name, spec.config.model_type,
                  spec.config.experts.count > 0 ? "it has experts.gate_up_proj and experts.down_proj" : "it has no experts");
  }
  if (!f.lora_target_parameters.empty() && spec.adapter.lora.dropout > 0.0)
    fail_config(
        "lora_dropout {} cannot be combined with lora_target_parameters: PEFT has no dropout there; set it to 0, or name the "
        "experts' linears in lora_target",
        spec.adapter.lora.dropout);
}

ops::Quantization quantization_of(const config::ModelArgs& model) {
  if (!model.quantization_bit) return {};
  if (*model.quantization_bit == 4)
    return {model.quantization_type == "fp4" ? ops::QuantFormat::fp4 : ops::QuantFormat::nf4, model.double_quantization};
  return {model.quantization_method == "fp8" ? ops::QuantFormat::fp8 : ops::QuantFormat::int8};
}

model::Head head_of(const config::RunConfig& config, const ModelSource& source) {
  switch (config.stage().head) {
    case config::HeadKind::language_model:
      break;
    case config::HeadKind::value:
      return model::Head::value;
    case config::HeadKind::classifier:
      return model::Head::classifier(labels_of(config));
    case config::HeadKind::vector:
      return model::Head::vector(source.config().hidden_size);
    case config::HeadKind::token_difference: {
      const AnswerTokens tokens = answer_tokens(config, source.trains());
      return model::Head::token_difference(tokens.positive, tokens.negative);
    }
  }
  return model::Head::language_model;
}

std::string words_of_labels(std::int64_t labels) {
  return labels > 0 ? fmt::format("a classifier of {}", count_noun(labels, "label")) : std::string("no classifier");
}

/// Returns the keys for a model of this many labels, for messages. Rerankers, and models that `dir` shows to be rerankers, have
/// one label and no num_labels.
std::string keys_for(std::int64_t labels, const config::RunConfig& config, const std::filesystem::path& dir) {
  const bool ranks =
      config.stage().sample == config::SampleKind::ranking || model::sentence_model(dir) == model::SentenceModel::other;
  if (labels == 1 && ranks) return kClassificationKeys;
  return fmt::format("stage: seq_cls and num_labels: {}", labels);
}

/// Returns the stage for messages, with the key that selects its head.
std::string stage_words(const config::RunConfig& config) {
  const auto& f = config.finetuning;
  return config.stage().sample == config::SampleKind::ranking
             ? fmt::format("stage {} with reranker_type {}", f.stage, f.reranker_type)
             : fmt::format("stage {}", f.stage);
}

/// Throws ConfigError if the live adapter has another head than the run.
void require_head_of_adapter(const config::RunConfig& config, const ModelSource& source, std::int64_t asked,
                             std::int64_t labels) {
  if (!source.live() || labels == asked) return;
  const std::string described = sentence_keys(source.live()->dir);
  const std::string keys = labels > 0           ? keys_for(labels, config, source.live()->dir)
                           : !described.empty() ? described
                           : config.stage().sample == config::SampleKind::ranking
                               ? "reranker_type: generative if it is a generative reranker"
                               : "stage and num_labels as in its training";
  fail_config("{}: {} asks for {}, but the adapter '{}' is of {}: set {}{}",
              config.is_given("stage") ? config.given.find("stage")->second : "the run file", stage_words(config),
              words_of_labels(asked), source.live()->dir.string(), words_of_labels(labels), keys,
              source.trains() ? ", or create_new_adapter: true, which merges it and trains a new one" : "");
}

/// Throws ConfigError if the run's head differs from the head of the adapter or the model. Training may replace the model's.
void require_head(const config::RunConfig& config, const ModelSource& source, const model::AdapterConfig& own) {
  const model::ModelConfig& model = source.config();
  const auto& f = config.finetuning;
  const std::int64_t asked = config.stage().classifies() ? labels_of(config) : 0;
  const std::int64_t labels = own.targets().labels;
  if (asked > 0) model::require_classifier(model, stage_words(config));
  for (const AdapterSource& merged : source.merged())
    if (const std::int64_t theirs = merged.config.targets().labels; theirs > 0 && theirs != asked)
      fail_config("the adapter '{}' is of {}, and merging it for {} would lose its head: leave it out, or set {}",
                  merged.dir.string(), words_of_labels(theirs), stage_words(config), keys_for(theirs, config, merged.dir));
  require_head_of_adapter(config, source, asked, labels);
  if (model.labels == 0 || labels > 0 || model.labels == asked) {
    const bool has_kind = asked > 0 && config.stage().sample != config::SampleKind::ranking;  // a reranker's scores have none
    if (has_kind && !model.problem_type.empty() && f.problem_type.empty() &&
        model.problem_type != f.effective_problem_type(asked))
      fail_config("'{}' is a classifier of problem_type {}, and num_labels: {} alone means {}: write problem_type",
                  config.model.model_name_or_path, model.problem_type, asked, f.effective_problem_type(asked));
    return;
  }
  fail_config("{} asks for {}, but '{}' is {} by its config.json: set {}", stage_words(config), words_of_labels(asked),
              config.model.model_name_or_path, words_of_labels(model.labels), keys_for(model.labels, config, source.dir()));
}

/// Returns how the weights lie in memory: as the run file asks, or as a model with quantised linears stores them; those are used
/// unchanged and do not train.
model::WeightStorage storage_of(const config::RunConfig& config, const ModelSource& source, model::Finetuning method) {
  const model::ModelConfig& model = source.config();
  if (!model.stored) return model::WeightStorage::in(quantization_of(config.model));
  const std::string kind = model::describe(*model.stored), path = config.model_path();
  if (config.model.quantization_bit)
    fail_config("{}: quantization_bit is {}, but '{}' is already quantised ({}): remove the key",
                config.is_given("quantization_bit") ? config.given.find("quantization_bit")->second : "the run file",
                *config.model.quantization_bit, path, kind);
  if (source.trains() && method != model::Finetuning::adapter)
    fail_config("finetuning_type is {}, but '{}' is quantised ({}), and quantised weights cannot be trained: set it to lora",
                config.finetuning.finetuning_type, path, kind);
  return model::weight_storage_of(*model.stored, source.has_weights() ? &source.files() : nullptr);
}

/// Calls `build`. If the model does not allow a degree, says where the run file has it.
model::ModelSpec with_places(const config::RunConfig& config, const std::function<model::ModelSpec()>& build) {
  try {
    return build();
  } catch (const model::DegreeError& error) {
    fail_config("{}: {}", config::at_key(config, error.key()), error.reason());
  }
}

/// Returns the spec of the run's model: with a sequence head in stages rm and seq_cls, and with the adapter of `source` or,
/// without one, of the run file. Opens weight files only for quantised models. Throws ConfigError if run file and model do not
/// fit.
model::ModelSpec spec_of(const config::RunConfig& config, const ModelSource& source, const RankShares& shares) {
  const model::AdapterConfig adapter = adapter_of(config, source);
  const config::FinetuningArgs& f = config.finetuning;
  const bool training = source.trains(), freeze = training && f.finetuning_type == "freeze";
  const auto method = adapter.enabled() ? model::Finetuning::adapter
                      : freeze          ? model::Finetuning::freeze
                                        : model::Finetuning::full;
  const model::ModelConfig& architecture = source.config();
  require_head(config, source, adapter);
  require_modules(config, source);
  if (training && config.stage().head == config::HeadKind::vector) require_widths(embedding_options(f), architecture.hidden_size);
  if (training) require_shareable_prompts(config, architecture.rope);
  model::ModelSpec spec = with_places(config, [&] {
    return model::ModelSpec::build(architecture, method, adapter, storage_of(config, source, method), head_of(config, source),
                                   freeze ? freeze_of(f, architecture.num_layers) : model::FreezeConfig{}, shares.tensor,
                                   shares.context);
  });
  if (training && adapter.enabled() && !source.live()) require_targets(config, spec);
  if (training && f.loraplus_lr_ratio) set_rates(spec, *f.loraplus_lr_ratio);
  return spec;
}

/// Returns the context rank that has most columns of whole sequences. Copies of key heads may give a later one more than the
/// first.
model::Share fullest_context(const model::ModelSpec& spec) {
  std::vector<std::int64_t> columns(static_cast<std::size_t>(spec.context.ranks), 0);
  for (const model::Layer& layer : spec.layers)
    for (const model::SubLayerSpec& sublayer : layer)
      for (std::size_t r = 0; r < sublayer.sequences.ranks.size(); ++r)
        columns[r] += sublayer.sequences.ranks[r].columns(1, false) + 2 * sublayer.sequences.ranks[r].columns(1, true);
  return {static_cast<int>(std::ranges::max_element(columns) - columns.begin()), spec.context.ranks};
}

/// Returns the spec by which all ranks plan: that of the first tensor rank, which has most of each tensor, and of the context
/// rank that has most heads. Quantised parts of another tensor rank may still take more bytes, because its cuts divide groups, or
/// its nested scales become fp32; each unit has the most.
model::ModelSpec planned_spec(const config::RunConfig& config, const ModelSource& source) {
  const auto ranks = static_cast<int>(config.parallel.tensor_parallel);
  model::Share context{0, static_cast<int>(config.parallel.context_parallel)};
  model::ModelSpec spec = spec_of(config, source, {{0, ranks}, context});
  context = fullest_context(spec);
  if (context.rank > 0) spec = spec_of(config, source, {{0, ranks}, context});
  if (std::ranges::all_of(spec.units, [](const model::UnitSpec& unit) { return unit.packed_bytes == 0; })) return spec;
  for (int rank = 1; rank < ranks; ++rank) {
    const model::ModelSpec other = spec_of(config, source, {{rank, ranks}, context});
    for (std::size_t u = 0; u < spec.units.size(); ++u)
      spec.units[u].packed_bytes = std::max(spec.units[u].packed_bytes, other.units[u].packed_bytes);
  }
  return spec;
}

/// Throws ConfigError if layers are to run as CUDA graphs but cannot.
void require_graphs(const plan::RunPlan& run, c10::Device device) {
  if (!run.schedule.graphs) return;
  const model::ModelSpec& spec = *run.spec;
  const at::ScalarType compute = run.precision.compute;
  const parallel::Strategy& strategy = run.sharding.strategy;
  if (!strategy.has_fixed_addresses())
    fail_config(
        "cuda_graphs needs weights and gradients at fixed addresses, but strategy {} runs, which shards them: use ddp or zero1, "
        "or remove cuda_graphs",
        strategy.name);
  if (spec.config.rope.dynamic)
    fail_config(
        "cuda_graphs replays layers with one table of angles, but the model's rope scaling is dynamic: remove cuda_graphs");
  const bool bf16_has_flash = compute == at::kFloat && device::facts_of(device).bf16 &&
                              ops::planned_attention_path(at::kBFloat16, spec.config.head_dim) == ops::AttentionPath::flash;
  for (const model::Layer& layer : spec.layers)
    for (const model::SubLayerSpec& sublayer : layer)
      if (!model::make_sublayer(spec.config, sublayer)->can_be_captured(device, compute))
        fail_config(
            "cuda_graphs needs flash attention, which LibTorch does not have for {} and heads of {} on {} (its other kernels "
            "copy each sequence, and a graph cannot follow changing lengths): {}remove cuda_graphs",
            c10::toString(compute), spec.config.head_dim, device::describe(device), bf16_has_flash ? "set bf16: true, or " : "");
}

std::string head_names(const model::Head& head) {
  return head.classifies() ? fmt::format("tensor {}", model::kScore)
                           : fmt::format("{} (nor {})", io::kValueHeadFiles[0], io::kValueHeadFiles[1]);
}

/// Training may start from a new head.
void require_value_head(const config::RunConfig& config, const ModelSource& source, const model::ModelSpec& spec) {
  if (const auto file = head_file(source, spec); !file.path.empty()) return model::require_value_head(spec, file);
  if (source.trains()) return;
  const std::filesystem::path dir = model::sentence_folder(source.dir(), source.last_adapter());
  if (const std::string keys = sentence_keys(dir); !keys.empty() && config.stage().sample != config::SampleKind::ranking)
    fail_config("'{}' has no {}, and stage is {}: by '{}' set {}", source.dir().string(), head_names(spec.head),
                config.finetuning.stage, (dir / model::kModulesFile).string(), keys);
  const auto& [adapters, model] = std::pair(config.model.adapter_name_or_path, config.model.model_name_or_path);
  fail_config("'{}' has no {}: it is not a {}; set {} to an output_dir of stage {}, or set another stage",
              adapters.empty() ? model : adapters.back(), head_names(spec.head),
              spec.head.classifies() ? "classifier" : "reward model",
              adapters.empty() ? "adapter_name_or_path or model_name_or_path" : "adapter_name_or_path", config.finetuning.stage);
}

/// Checks the headers of all files that the run loads.
void require_files(const config::RunConfig& config, const ModelSource& source, const model::ModelSpec& spec) {
  std::vector<std::filesystem::path> merged;
  for (const AdapterSource& adapter : source.merged()) merged.push_back(adapter.dir);
  model::merge_adapters(source.files(), source.own_config(), merged);
  model::require_base_weights(spec, source.files());
  if (source.live()) model::require_adapter(spec, source.live()->dir);
  if (spec.head.has_linear()) require_value_head(config, source, spec);
}

/// Throws ConfigError if debug_sync is combined with work that waits for the device.
void require_no_waits(const plan::RunPlan& run) {
  if (!run.diagnostics.debug_sync || run.on_cpu) return;
  const parallel::Offload& offload = run.sharding.offload;
  if (offload.optimizer || offload.weights)
    fail_config(
        "debug_sync cannot be combined with offloading, which waits for copies to host memory, but {} runs: choose a strategy "
        "without offloading, or remove debug_sync",
        parallel::describe(run.sharding));
  if (run.spec->config.experts.count > 0)
    fail_config(
        "debug_sync cannot be combined with experts: the host waits for each router to distribute the rows; remove debug_sync");
}

/// Ranks with other degrees would wait in other collectives. Collective.
void require_same_degrees(const config::RunConfig& config, comm::Communicator& comm) {
  for (const auto& [key, degree] : {std::pair("tensor_parallel", config.parallel.tensor_parallel),
                                    std::pair("context_parallel", config.parallel.context_parallel)}) {
    const std::vector<std::int64_t> all = comm::all_gather_value(comm, degree);
    const auto other = std::ranges::find_if(all, [&](std::int64_t value) { return value != all.front(); });
    if (other != all.end())
      fail_config("{} is {} on rank 0, but {} on rank {}: give all ranks the same run file and arguments", key, all.front(),
                  *other, other - all.begin());
  }
}

}  // namespace

RankShares RankShares::of(const comm::Mesh& mesh) {
  const auto share = [&](comm::Axis axis) { return model::Share{mesh.coordinate(axis), mesh.degree(axis)}; };
  return {share(comm::Axis::tensor), share(comm::Axis::context)};
}

plan::RunPlan plan_of(const config::RunConfig& config, const ModelSource& source, std::optional<RankShares> shares) {
  const auto spec_for = [&](const config::RunConfig& model, const ModelSource& of) {
    return std::make_shared<const model::ModelSpec>(shares ? spec_of(model, of, *shares) : planned_spec(model, of));
  };
  plan::RunPlan run = plan::plan_of_settings(config, source.trains());
  run.spec = spec_for(config, source);
  run.objective = traits_of(config);
  run.schedule.reference = has_reference_lane(config, run.spec->adapter, source.use());
  // Only training needs its reference here; answers need none, whatever the stage.
  if (source.reference() && reference_of(config, run.spec->adapter, source.use()) == ReferenceKind::model)
    run.reference_model = spec_for(reference_config(config, source.use()), *source.reference());
  if (!source.trains()) {
    run.objective.kind = parallel::ObjectiveKind::row_local;
    return run;
  }
  run.precision = training_precision(config);
  run.random.lora_dropout = run.spec->adapter.lora.dropout;
  return run;
}

plan::RunPlan resolve_run(const config::RunConfig& config, const ModelSource& source, comm::Communicator& comm,
                          c10::Device device, const plan::Batches& batches) {
  require_same_degrees(config, comm);
  plan::RunPlan run;
  const bool all_bf16 = comm::all_reduce_value(comm, has_bf16(device) ? 1 : 0, comm::ReduceOp::min) == 1;
  // If one rank cannot see a directory, all ranks must end, with that rank's reason.
  comm::agreed(comm, [&] {
    run = plan_of(config, source);
    require_files(config, source, *run.spec);
    ChosenPrecision chosen = precision_of(config, source, device, all_bf16);
    run.precision = chosen.precision;
    run.precision_reason = std::move(chosen.reason);
    if (run.reference_model) require_shareable_prompts(config, run.reference_model->config.rope);
  });
  if (run.training)
    if (const std::string warning = plan::precision_warning(run.precision, device.is_cpu()); !warning.empty())
      log::warn_once(warning);
  device::release_unused();  // frees what packing and the tokenizer took
  const plan::MachineFacts machine = plan::machine_facts(config, run, comm, device);
  run = plan::resolve(std::move(run), config, machine, batches);
  comm::agreed(comm, [&] {
    require_graphs(run, device);
    require_no_waits(run);
  });
  // Until here all ranks have planned alike; each now takes its own part.
  if (run.sharding.tensor_ranks * run.sharding.context_ranks > 1) {
    plan::RunPlan own = plan_of(config, source, RankShares::of(comm::Mesh(run.sharding.degrees(), comm.rank(), comm.size())));
    run.spec = std::move(own.spec);
    run.reference_model = std::move(own.reference_model);
  }
  if (device.is_cpu())
    run.footprint.kernels = device::raise_kernel_cache_limit(plan::kernel_sets(*run.spec, run.precision, run.schedule.group));
  return run;
}

}  // namespace qft::engine
