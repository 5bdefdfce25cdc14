#include "qft/config/run_config.h"
#include "qft/core/error.h"

#include "apply.h"
#include "bound_field.h"
#include "import_table.h"
#include "value.h"

namespace qft::config {
namespace {

// Where two keys speak of one thing: which of them counts.
void note_precedence(RunConfig& config) {
  const TrainingArgs& t = config.training;
  const auto wins = [&](std::string_view winner, std::string_view loser) {
    config.notes.push_back(
        fmt::format("{} decides; {} has no effect", at_key(config, winner), at_key(config, loser)));
  };
  if (t.warmup_steps > 0 && t.warmup_ratio > 0) wins("warmup_steps", "warmup_ratio");
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
  if (config.data.packing == true && !config.data.neat_packing && config.finetuning.stage == "sft") {
    config.notes.push_back(fmt::format("{}: samples of one row do not see each other, as with neat_packing",
                                       at_key(config, "packing")));
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
  note_precedence(config);
  return config;
}

}  // namespace qft::config
