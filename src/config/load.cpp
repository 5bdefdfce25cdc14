#include "qft/config/run_config.h"
#include "qft/config/start.h"
#include "qft/core/error.h"

#include "apply.h"
#include "bound_field.h"
#include "import_table.h"
#include "runnable.h"
#include "value.h"

namespace qft::config {
namespace {

void note_winner(RunConfig& config, std::string_view winner, std::string_view loser) {
  config.notes.push_back(fmt::format("{} decides; {} has no effect", at_key(config, winner), at_key(config, loser)));
}

// Without training: what the type of compute follows from, and that nothing is trained where that may surprise.
void note_inference(RunConfig& config, Purpose purpose) {
  const TrainingArgs& t = config.training;
  if (purpose == Purpose::train && !config.is_given("do_train")) {
    config.notes.push_back(fmt::format("{} without do_train: nothing is trained; do_train: true trains first",
                                       at_key(config, t.do_predict ? "do_predict" : "do_eval")));
  }
  if (config.model.infer_dtype == "auto" || purpose == Purpose::export_model) return;
  for (const auto& [key, asks] : {std::pair{"bf16", t.bf16}, {"fp16", t.fp16}, {"pure_bf16", t.pure_bf16},
                                  {"compute_dtype", t.compute_dtype != "auto"}})
    if (asks) note_winner(config, "infer_dtype", key);
}

// Where two keys of training speak of one thing: which of them counts.
void note_training(RunConfig& config) {
  const TrainingArgs& t = config.training;
  const auto wins = [&](std::string_view winner, std::string_view loser) { note_winner(config, winner, loser); };
  if (config.model.infer_dtype != "auto") {
    config.notes.push_back(fmt::format("{} has no effect in training: bf16, fp16, pure_bf16 and compute_dtype decide",
                                       at_key(config, "infer_dtype")));
  }
  if (t.warmup_steps >= 1 && t.warmup_ratio > 0) {
    config.notes.push_back(fmt::format("{} decides, as with transformers 4; {}, which transformers 5 would take, has no effect",
                                       at_key(config, "warmup_steps"), at_key(config, "warmup_ratio")));
  }
  if (t.max_steps > 0 && config.is_given("num_train_epochs")) wins("max_steps", "num_train_epochs");
  if (t.global_batch_size && config.is_given("gradient_accumulation_steps")) {
    wins("global_batch_size", "gradient_accumulation_steps");
  }
  if (t.gradient_checkpointing == true && config.model.disable_gradient_checkpointing) {
    wins("gradient_checkpointing", "disable_gradient_checkpointing");
  }
  if (config.eval.predict_with_generate && t.do_predict && t.do_eval) {
    config.notes.push_back(fmt::format("{}: evaluations during training report the loss; answers are generated after it",
                                       at_key(config, "predict_with_generate")));
  }
}

void note_packing(RunConfig& config) {
  if (config.data.packing == true && !config.data.neat_packing && config.finetuning.stage == "sft") {
    config.notes.push_back(fmt::format("{}: samples of one row do not see each other, as with neat_packing",
                                       at_key(config, "packing")));
  }
}

// What one program says of the keys that it reads.
void note_precedence(RunConfig& config, Purpose purpose) {
  switch (purpose) {
    case Purpose::eval:
    case Purpose::generate:
    case Purpose::export_model:
      return note_inference(config, purpose);
    case Purpose::pack:
      return note_packing(config);
    default:
      if (!trains(config)) return note_inference(config, purpose);
      note_training(config);
      note_packing(config);
  }
}

}  // namespace

RunConfig load_run_config(const std::filesystem::path& file, std::span<const std::string> overrides,
                          Purpose purpose) {
  RunConfig config;
  config.source = file;
  std::vector<Setting> settings;
  if (!file.empty()) settings = settings_of(parse_file(file), file.string());
  for (const std::string& text : overrides) settings.push_back(override_setting(text));
  apply_settings(config, settings);
  import_launchers(config);
  config.resolve();
  config.validate(purpose);
  note_without_effect(config);
  note_precedence(config, purpose);
  return config;
}

}  // namespace qft::config
