#include "qft/config/run_config.h"

#include "qft/config/bound_field.h"
#include "qft/config/start.h"
#include "qft/config/value.h"
#include "qft/core/convert.h"
#include "qft/core/error.h"

namespace qft::config {
namespace {

/// The largest effective ddp_timeout in seconds: no healthy run makes no progress for longer.
constexpr std::int64_t kMaxDdpTimeout = 4 * 3600;

/// Default without eval_steps and logging_steps, as in LLaMA-Factory.
constexpr double kDefaultEvalSteps = 500;

}  // namespace

void RunConfig::visit(const std::function<void(std::string_view title)>& group, const FieldVisitor& field) {
  group("model");
  model.visit(field);
  group("method");
  finetuning.visit(field);
  group("dataset");
  data.visit(field);
  group("train");
  training.visit(field);
  group("parallel");
  parallel.visit(field);
  group("eval");
  eval.visit(field);
  group("generate");
  generate.visit(field);
  group("export");
  exporting.visit(field);
}

namespace {

/// Applies the base of loss_scale to mask_history and train_on_prompt.
void resolve_loss_scale(RunConfig& c) {
  const auto [base, schemes] = parse_loss_scale(c.data.loss_scale);
  const Stage& stage = c.stage();
  const std::string_view learned = stage.has_documents() ? "all" : "last_round";  // fixed if labels have no weights
  if (!stage.weighs_labels && (!schemes.empty() || (!base.empty() && base != "default" && base != learned)))
    fail_config("{} is {}, but {} is {}, which gives {} the same weight: remove it", at_key(c, "loss_scale"), c.data.loss_scale,
                at_key(c, "stage"), stage.name, stage.has_documents() ? "all tokens" : "the tokens of answers");
  if (!stage.weighs_labels || base.empty()) return;
  for (const auto& [key, value, asked] : {std::tuple("mask_history", &c.data.mask_history, base == "last_round"),
                                          std::tuple("train_on_prompt", &c.data.train_on_prompt, base == "all")}) {
    if (c.is_given(key) && *value != asked)
      fail_config("{} is {}, but {} is {}: remove one", at_key(c, "loss_scale"), c.data.loss_scale, at_key(c, key), *value);
    *value = asked;
    c.given.try_emplace(key, c.given["loss_scale"]);
  }
}

}  // namespace

void RunConfig::resolve() {
  resolve_loss_scale(*this);
  if (data.chat_template == "tokenizer_default") {  // axolotl's value
    data.chat_template.clear();
    data.template_name = "own";
  }
  if (finetuning.lora_alpha == 0) finetuning.lora_alpha = 2 * finetuning.lora_rank;
  if (finetuning.oft_rank > 0 && !is_given("oft_block_size")) finetuning.oft_block_size = 0;
  if (!data.packing) data.packing = data.neat_packing || stage().has_documents();
  if (!training.data_seed) training.data_seed = training.seed;
  if (training.eval_steps == 0.0) training.eval_steps = training.logging_steps > 0.0 ? training.logging_steps : kDefaultEvalSteps;
  if (training.eval_strategy != "no") training.do_eval = true;
  const Value resume{.kind = Value::Kind::scalar, .text = training.resume_from_checkpoint};
  if (const auto flag = as_bool(resume)) training.resume_from_checkpoint = *flag ? "true" : "false";
  if (training.load_best_model_at_end && training.metric_for_best_model.empty()) {
    training.metric_for_best_model = "loss";
  }
  if (!training.metric_for_best_model.empty() && !training.greater_is_better) {
    const std::string& metric = training.metric_for_best_model;
    training.greater_is_better = !metric.ends_with("loss") && !metric.ends_with("perplexity");
  }
  if (training.ddp_timeout > kMaxDdpTimeout) {
    notes.push_back(fmt::format("{} is {} s, too long to end a job that hangs: using {} s", at_key(*this, "ddp_timeout"),
                                training.ddp_timeout, kMaxDdpTimeout));
    training.ddp_timeout = kMaxDdpTimeout;
  }
  if (training.log_level == "passive") training.log_level = "info";
  if (training.log_level == "critical") training.log_level = "error";
  parallel.strategy = canonical_strategy(parallel.strategy);
}

bool uses_models(Purpose purpose) {
  return purpose == Purpose::eval || purpose == Purpose::generate || purpose == Purpose::export_model;
}

bool trains_by(std::optional<bool> do_train, bool do_eval, bool do_predict) {
  return do_train.value_or(!do_eval && !do_predict);
}

bool trains(const RunConfig& c) {
  const TrainingArgs& t = c.training;
  return trains_by(c.is_given("do_train") ? std::optional(t.do_train) : std::nullopt, c.is_given("do_eval") && t.do_eval,
                   c.is_given("do_predict") && t.do_predict);
}

DType RunConfig::compute_dtype() const {
  if (const auto named = dtype_from_torch(training.compute_dtype)) return *named;
  if (training.bf16 || training.pure_bf16) return DType::bf16;
  return training.fp16 ? DType::f16 : DType::f32;
}

bool RunConfig::fp32_masters() const {
  return size_of(compute_dtype()) == 2 && !training.pure_bf16;
}

bool RunConfig::recompute() const {
  return training.gradient_checkpointing.value_or(!model.disable_gradient_checkpointing);
}

bool RunConfig::may_choose_recompute() const {
  return parallel.max_memory > 0 && !training.gradient_checkpointing.has_value() && !model.disable_gradient_checkpointing &&
         parallel.offload_activations == "none";
}

std::string_view RunConfig::unshared_prompts_reason() const {
  if (!stage().has_pairs()) return "only stages dpo and rm have pairs";
  if (!finetuning.share_prompts) return "share_prompts is false";
  if (training.neftune_noise_alpha > 0) return "neftune_noise_alpha adds different noise to each sequence";
  if (training.cuda_graphs) return "cuda_graphs replays recorded layers for sequences of other lengths";
  return {};
}

const std::string& RunConfig::folder_of(const std::string& name) const {
  const auto found = folders.find(name);
  return found == folders.end() ? name : found->second;
}

std::vector<std::filesystem::path> RunConfig::adapter_paths() const {
  std::vector<std::filesystem::path> paths;
  for (const std::string& name : model.adapter_name_or_path) {
    const std::filesystem::path dir = folder_of(name);
    paths.push_back(model.adapter_folder.empty() ? dir : dir / model.adapter_folder);
  }
  return paths;
}

const std::string& RunConfig::tokenizer_path() const {
  return folder_of(model.tokenizer_name_or_path.empty() ? model.model_name_or_path : model.tokenizer_name_or_path);
}

std::vector<BoundField> bound_fields(RunConfig& config) {
  std::vector<BoundField> fields;
  std::string_view group;
  config.visit([&](std::string_view title) { group = title; },
               [&](const Field& field, FieldRef ref) { fields.push_back({field, ref, group}); });
  return fields;
}

const BoundField* find_field(const std::vector<BoundField>& fields, std::string_view name) {
  for (const BoundField& bound : fields) {
    if (bound.field.name == name) return &bound;
  }
  return nullptr;
}

std::string at_key(const RunConfig& config, std::string_view key) {
  const auto found = config.given.find(key);
  return found == config.given.end() ? std::string(key) : fmt::format("{}: {}", found->second, key);
}

}  // namespace qft::config
