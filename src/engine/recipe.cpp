#include "qft/engine/recipe.h"

#include "qft/core/convert.h"
#include "qft/core/error.h"
#include "qft/core/units.h"
#include "qft/device/scalar_type.h"
#include "qft/engine/objectives.h"
#include "qft/engine/reference.h"
#include "qft/model/adapter_config.h"
#include "qft/model/classifier.h"
#include "qft/model/load.h"
#include "qft/model/pissa.h"

#include <algorithm>
#include <map>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

#include <fmt/ranges.h>

namespace qft::engine {
namespace {

std::string join(const std::vector<std::string>& words) {
  std::string text;
  for (const auto& w : words) text += (text.empty() ? "" : ",") + w;
  return text;
}

std::vector<std::string> sorted(std::vector<std::string> words) {
  std::ranges::sort(words);
  return words;
}

/// Returns the type of the first tensor with a floating type (not quantised).
at::ScalarType file_type(const io::ModelFiles& files) {
  for (const std::string& name : files.names())
    if (const DType type = files.at(name).entry->dtype; is_floating(type)) return device::scalar_type_of(type);
  fail("'{}' holds no tensors of a floating type", files.dir().string());
}

/// Parses rank_pattern or alpha_pattern: a mapping of expressions to numbers.
template <class Number>
std::map<std::string, Number> pattern_of(const config::RunConfig& config, const char* key, const nlohmann::json& pattern) {
  if (pattern.is_null()) return {};
  const auto given = config.given.find(key);
  const std::string where = given == config.given.end() ? key : given->second + ": " + key;
  if (!pattern.is_object())
    fail_config("{}: expected a mapping of modules to numbers, as in {{q_proj: 16}}, got {}", where, pattern.dump());
  std::map<std::string, Number> numbers;
  for (const auto& [expression, number] : pattern.items()) {
    constexpr bool kWhole = std::is_integral_v<Number>;
    const bool fits = kWhole ? number.is_number_integer() : number.is_number();
    if (!fits || number.template get<double>() <= 0 || number.template get<double>() > 65536)
      fail_config("{}: '{}' is {}, expected {} up to 65536", where, expression, number.dump(),
                  kWhole ? "a whole number from 1" : "a number above 0");
    numbers[expression] = number.template get<Number>();
  }
  return numbers;
}

/// Training continues an existing adapter unchanged: throws ConfigError for keys that ask for different settings.
class AdapterKeyCheck {
 public:
  AdapterKeyCheck(const config::RunConfig& config, const std::filesystem::path& dir)
      : config_(config), dir_(dir), modules_(model::lora_modules(model::ModelConfig::load(config.model_path()))) {}

  template <class Asked, class Theirs>
  void same(const char* key, bool equal, const Asked& asked, const Theirs& theirs) const {
    if (!config_.is_given(key) || equal) return;
    fail_config(
        "{}: {} is {}, but the adapter '{}' that training starts from has {}: remove the key to continue with that adapter, or "
        "set create_new_adapter: true, which merges it and trains a new one",
        config_.given.find(key)->second, key, asked, dir_.string(), theirs);
  }
  void same_targets(const std::vector<std::string>& asked, const model::AdapterTargets& theirs) const {
    model::AdapterTargets wish;
    wish.key = theirs.key;
    wish.set_targets(join(asked));
    same(theirs.key, of_model(wish) == of_model(theirs), join(asked), theirs.targets_text());
    const auto& saved = config_.finetuning.additional_target;
    same("additional_target", sorted(saved) == sorted(theirs.modules_to_save), join(saved), join(theirs.modules_to_save));
  }

 private:
  std::string of_model(model::AdapterTargets targets) const {
    targets.keep_targets(modules_);
    return targets.targets_text();
  }

  const config::RunConfig& config_;
  const std::filesystem::path& dir_;
  std::vector<std::string> modules_;
};

void require_same_adapter(const config::RunConfig& config, const model::OftConfig& adapter, const std::filesystem::path& dir) {
  const auto& f = config.finetuning;
  const AdapterKeyCheck asked(config, dir);
  asked.same("oft_rank", f.oft_rank == adapter.rank, f.oft_rank, adapter.rank);
  asked.same("oft_block_size", f.oft_block_size == adapter.block_size, f.oft_block_size, adapter.block_size);
  asked.same("use_cayley_neumann", f.use_cayley_neumann == adapter.neumann, f.use_cayley_neumann, adapter.neumann);
  asked.same("num_cayley_neumann_terms", f.num_cayley_neumann_terms == adapter.terms, f.num_cayley_neumann_terms, adapter.terms);
  asked.same("block_share", f.block_share == adapter.shared, f.block_share, adapter.shared);
  asked.same_targets(f.oft_target, adapter);
}

void require_same_adapter(const config::RunConfig& config, const model::LoraConfig& adapter, const std::filesystem::path& dir) {
  const auto& f = config.finetuning;
  const AdapterKeyCheck asked(config, dir);
  const auto same = [&](const char* key, bool equal, const auto& ours, const auto& theirs) {
    asked.same(key, equal, ours, theirs);
  };
  model::LoraConfig wish;
  asked.same_targets(f.lora_target, adapter);
  wish.ranks = pattern_of<std::int64_t>(config, "rank_pattern", f.rank_pattern);
  wish.alphas = pattern_of<double>(config, "alpha_pattern", f.alpha_pattern);
  same("lora_rank", f.lora_rank == adapter.rank, f.lora_rank, adapter.rank);
  same("lora_alpha", static_cast<double>(f.lora_alpha) == adapter.alpha, f.lora_alpha, adapter.alpha);
  same("use_rslora", f.use_rslora == adapter.rslora, f.use_rslora, adapter.rslora);
  same("use_dora", f.use_dora == adapter.dora, f.use_dora, adapter.dora);
  same("pissa_init", !f.pissa_init, f.pissa_init, false);  // already applied when the adapter was made
  same("rank_pattern", wish.ranks == adapter.ranks, f.rank_pattern.dump(), nlohmann::json(adapter.ranks).dump());
  same("alpha_pattern", wish.alphas == adapter.alphas, f.alpha_pattern.dump(), nlohmann::json(adapter.alphas).dump());
  same("lora_target_parameters", f.lora_target_parameters == adapter.target_parameters, join(f.lora_target_parameters),
       join(adapter.target_parameters));
}

model::OftConfig oft_of(const config::FinetuningArgs& f) {
  model::OftConfig oft;
  oft.rank = f.oft_rank;
  oft.block_size = f.oft_block_size;
  oft.shared = f.block_share;
  oft.neumann = f.use_cayley_neumann;
  oft.terms = f.num_cayley_neumann_terms;
  oft.set_targets(join(f.oft_target));
  oft.modules_to_save = f.additional_target;
  return oft;
}

/// For stage seq_cls. The key is checked here because a pack may have set the stage.
std::int64_t labels_of(const config::RunConfig& config) {
  if (!config.finetuning.num_labels)
    fail_config("stage seq_cls needs num_labels: how many labels there are, or 1 for a regression");
  return *config.finetuning.num_labels;
}

/// No dropout if the loss compares the log-probabilities of an item's sequences, as in TRL and LLaMA-Factory.
double dropout_of(const config::RunConfig& config) {
  return config.stage().lora_dropout ? config.finetuning.lora_dropout : 0.0;
}

model::LoraConfig lora_of(const config::RunConfig& config) {
  model::LoraConfig lora;
  lora.rank = config.finetuning.lora_rank;
  lora.alpha = static_cast<double>(config.finetuning.lora_alpha);
  lora.dropout = dropout_of(config);
  lora.rslora = config.finetuning.use_rslora;
  lora.set_targets(join(config.finetuning.lora_target));
  lora.target_parameters = config.finetuning.lora_target_parameters;
  lora.dora = config.finetuning.use_dora;
  if (config.finetuning.pissa_init)
    lora.pissa = model::LoraConfig::Pissa{config.finetuning.pissa_iter, config.finetuning.pissa_convert};
  lora.ranks = pattern_of<std::int64_t>(config, "rank_pattern", config.finetuning.rank_pattern);
  lora.alphas = pattern_of<double>(config, "alpha_pattern", config.finetuning.alpha_pattern);
  lora.modules_to_save = config.finetuning.additional_target;
  return lora;
}

/// Returns an empty config for full fine-tuning.
model::AdapterConfig adapter_of(const config::RunConfig& config, Use use) {
  const std::filesystem::path adapter = adapters_of(config, use).live;
  if (!adapter.empty()) {
    model::AdapterConfig theirs = model::read_adapter_config(adapter);
    if (use == Use::inference) return theirs;
    const bool oft = theirs.oft.enabled();
    if (const char* kind = oft ? "oft" : "lora"; config.finetuning.finetuning_type != kind)
      fail_config("finetuning_type is {}, but the adapter '{}' that training starts from is {}: set finetuning_type to {}",
                  config.finetuning.finetuning_type, adapter.string(), oft ? "OFT" : "LoRA", kind);
    if (oft)
      require_same_adapter(config, theirs.oft, adapter);
    else
      require_same_adapter(config, theirs.lora, adapter);
    theirs.lora.dropout = oft ? 0.0 : dropout_of(config);
    return theirs;
  }
  if (use == Use::inference || !config.finetuning.trains_adapter()) return {};
  model::AdapterConfig own;
  if (config.finetuning.finetuning_type == "oft")
    own = oft_of(config.finetuning);
  else
    own = lora_of(config);
  if (config.stage().classifies()) {
    own.targets().labels = labels_of(config);
    std::erase(own.targets().modules_to_save, "score");  // the head always trains
  }
  return own;
}

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

model::Head head_of(const config::RunConfig& config) {
  if (config.stage().classifies()) return model::Head::classifier(labels_of(config));
  return config.stage().head == config::HeadKind::value ? model::Head::value : model::Head::language_model;
}

/// Throws ConfigError if the run's head differs from the head of the adapter or the model. Training may replace the model's.
void require_head(const config::RunConfig& config, const model::ModelConfig& model, const model::AdapterConfig& own, Use use) {
  const auto& f = config.finetuning;
  const std::int64_t asked = config.stage().classifies() ? labels_of(config) : 0;
  const std::int64_t labels = own.targets().labels;
  const auto words = [](std::int64_t n) {
    return n > 0 ? fmt::format("a classifier of {}", count_noun(n, "label")) : std::string("no classifier");
  };
  if (asked > 0) model::require_classifier(model);
  for (const std::filesystem::path& merged : adapters_of(config, use).merged)
    if (const std::int64_t theirs = model::read_adapter_config(merged).targets().labels; theirs > 0 && theirs != asked)
      fail_config(
          "the adapter '{}' is of {}, and merging it for stage {} would lose its head: leave it out, or set stage: "
          "seq_cls and num_labels: {}",
          merged.string(), words(theirs), f.stage, theirs);
  if (const auto adapter = adapters_of(config, use).live; !adapter.empty() && labels != asked)
    fail_config("{}: stage {} asks for {}, but the adapter '{}' is of {}: set stage and num_labels as in its training{}",
                config.is_given("stage") ? config.given.find("stage")->second : "the run file", f.stage, words(asked),
                adapter.string(), words(labels),
                use == Use::training ? ", or create_new_adapter: true, which merges it and trains a new one" : "");
  if (model.labels == 0 || labels > 0 || model.labels == asked) {
    if (asked > 0 && !model.problem_type.empty() && f.problem_type.empty() &&
        model.problem_type != f.effective_problem_type(asked))
      fail_config("'{}' is a classifier of problem_type {}, and num_labels: {} alone means {}: write problem_type",
                  config.model.model_name_or_path, model.problem_type, asked, f.effective_problem_type(asked));
    return;
  }
  fail_config("stage {} asks for {}, but '{}' is {} by its config.json: set stage: seq_cls and num_labels: {}", f.stage,
              words(asked), config.model.model_name_or_path, words(model.labels), model.labels);
}

/// Returns the files of a model with quantised linears; these are used unchanged and do not train. Returns nullopt for other
/// models, and if there is only a config.json.
std::optional<io::ModelFiles> stored_files(const config::RunConfig& config, const model::ModelConfig& model,
                                           model::Finetuning method, Use use) {
  if (!model.stored) return {};
  const std::string kind = model::describe(*model.stored), path = config.model_path();
  if (config.model.quantization_bit)
    fail_config("{}: quantization_bit is {}, but '{}' is already quantised ({}): remove the key",
                config.is_given("quantization_bit") ? config.given.find("quantization_bit")->second : "the run file",
                *config.model.quantization_bit, path, kind);
  if (use == Use::training && method != model::Finetuning::adapter)
    fail_config("finetuning_type is {}, but '{}' is quantised ({}), and quantised weights cannot be trained: set it to lora",
                config.finetuning.finetuning_type, path, kind);
  if (!io::holds_model_weights(path)) return {};
  return io::ModelFiles::open(path);
}

}  // namespace

Adapters adapters_of(const config::RunConfig& config, Use use) {
  Adapters adapters;
  adapters.merged = config.adapter_paths();
  if (adapters.merged.empty() || (use == Use::training && config.finetuning.create_new_adapter)) return adapters;
  adapters.live = std::move(adapters.merged.back());
  adapters.merged.pop_back();
  return adapters;
}

model::HeadFile head_file(const config::RunConfig& config, const model::ModelSpec& spec, const io::ModelFiles& files) {
  return model::find_head(spec, files, adapters_of(config, Use::inference).live);  // the last adapter, even if training merges it
}

std::string problem_of(const config::RunConfig& config, const model::ModelConfig& model, std::int64_t labels) {
  const auto& f = config.finetuning;
  return f.problem_type.empty() && !model.problem_type.empty() ? model.problem_type : f.effective_problem_type(labels);
}

std::string fp32_notice(const config::RunConfig& config, const io::ModelFiles& files) {
  const auto& t = config.training;
  const bool said = config.is_given("bf16") || t.bf16 || t.fp16 || t.pure_bf16 || t.compute_dtype != "auto";
  const at::ScalarType type = file_type(files);
  if (said || (type != at::kBFloat16 && type != at::kHalf)) return {};
  return fmt::format(
      "the model's files are in {}, but training computes in float32, because no key sets a type: bf16: true halves the memory "
      "and is faster (bf16: false keeps float32)",
      torch_name(device::dtype_of(type)));
}

InferencePrecision inference_precision(const config::RunConfig& config, const io::ModelFiles& files) {
  const auto throughout = [](at::ScalarType type) { return optim::Precision{type, type, type, type}; };
  const auto& t = config.training;
  if (const auto named = dtype_from_torch(config.model.infer_dtype))
    return {throughout(device::scalar_type_of(*named)), "infer_dtype"};
  for (const auto& [key, asks] :
       {std::pair{"compute_dtype", t.compute_dtype != "auto"}, {"bf16", t.bf16}, {"pure_bf16", t.pure_bf16}, {"fp16", t.fp16}})
    if (asks) return {training_precision(config), key};
  const at::ScalarType type = file_type(files);
  if (type == at::kHalf) return {optim::Precision::fp32(), "the model's files, in float16"};
  if (type == at::kBFloat16 && config.is_given("bf16")) return {optim::Precision::fp32(), "bf16: false"};
  return {throughout(type), "the model's files"};
}

model::ModelConfig architecture_of(const config::RunConfig& config, Use use) {
  model::ModelConfig model = model::ModelConfig::load(config.model_path());
  if (config.model.rope_scaling.empty()) return model;
  const bool by_length = use == Use::training || config.is_given("cutoff_len");
  const std::int64_t before = model.first_positions(), tokens = by_length ? config.data.cutoff_len : 2 * before;
  return tokens <= before ? model : model.scaled_to(tokens, config.model.rope_scaling);
}

void require_shareable_prompts(const config::RunConfig& config, const model::RopeConfig& rope) {
  if (rope.scales_for(config.data.cutoff_len) && config.unshared_prompts_reason().empty())
    fail_config(
        "the model's rope scaling is dynamic: beyond {} tokens the angles of a pair's prompt depend on each answer's length, but "
        "cutoff_len is {} and prompts are computed once for both answers: set share_prompts: false",
        rope.dynamic->positions, config.data.cutoff_len);
}

void warn_of_other_bases(const config::RunConfig& config, const Adapters& adapters) {
  for (const std::filesystem::path& dir : adapters.merged)
    model::warn_about_other_base(dir, config.model.model_name_or_path, config.model_path());
  if (!adapters.live.empty()) model::warn_about_other_base(adapters.live, config.model.model_name_or_path, config.model_path());
}

model::ModelSpec spec_of(const config::RunConfig& config, Use use) {
  const model::AdapterConfig adapter = adapter_of(config, use);
  warn_of_other_bases(config, adapters_of(config, use));
  const config::FinetuningArgs& f = config.finetuning;
  const bool training = use == Use::training, freeze = training && f.finetuning_type == "freeze";
  const auto method = adapter.enabled() ? model::Finetuning::adapter
                      : freeze          ? model::Finetuning::freeze
                                        : model::Finetuning::full;
  const model::ModelConfig architecture = architecture_of(config, use);
  require_head(config, architecture, adapter, use);
  if (training) require_shareable_prompts(config, architecture.rope);
  const std::optional<io::ModelFiles> files = stored_files(config, architecture, method, use);
  model::ModelSpec spec =
      model::ModelSpec::build(architecture, method, adapter,
                              architecture.stored ? model::weight_storage_of(*architecture.stored, files ? &*files : nullptr)
                                                  : model::WeightStorage::in(quantization_of(config.model)),
                              head_of(config), freeze ? freeze_of(f, architecture.num_layers) : model::FreezeConfig{});
  if (training && adapter.enabled() && adapters_of(config, use).live.empty()) require_targets(config, spec);
  if (training && f.loraplus_lr_ratio) set_rates(spec, *f.loraplus_lr_ratio);
  return spec;
}

optim::Precision training_precision(const config::RunConfig& config) {
  switch (config.compute_dtype()) {
    case DType::f64:
      return optim::Precision::fp64();
    case DType::f32:
      return optim::Precision::fp32();
    case DType::f16:
      return optim::Precision::fp16();
    case DType::bf16:
      return config.fp32_masters() ? optim::Precision::bf16() : optim::Precision::pure_bf16();
    default:
      break;
  }
  fail_config("compute dtype {} is not implemented: use bf16, fp16, pure_bf16 or fp32", safetensors_name(config.compute_dtype()));
}

plan::Recipe recipe_of(const config::RunConfig& config) {
  plan::Recipe recipe{spec_of(config, Use::training), training_precision(config), traits_of(config)};
  recipe.objective.reference = has_reference_lane(config, recipe.spec, Use::training);
  recipe.reference_model = reference_spec(config, recipe.spec, Use::training);
  return recipe;
}

}  // namespace qft::engine
