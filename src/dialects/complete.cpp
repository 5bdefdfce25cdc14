#include "complete.h"

#include "qft/core/error.h"

#include <algorithm>
#include <filesystem>
#include <string>
#include <utility>

#include "foreign_keys.h"
#include "import_table.h"

namespace qft::dialects {
namespace {

bool has_key(const std::vector<Setting>& settings, std::string_view key) {
  return std::any_of(settings.begin(), settings.end(), [&](const Setting& s) { return s.key == key; });
}

// Notes ms-swift's other defaults for missing keys.
void note_swift_defaults(RunConfig& config, const std::vector<Setting>& settings) {
  const config::TrainingArgs& t = config.training;
  const config::FinetuningArgs& f = config.finetuning;
  std::string defaults;
  for (const SwiftDefault& row : swift_defaults()) {
    const bool lora_only = row.key.starts_with("lora_") && f.finetuning_type != "lora";
    const bool batch = row.key == "gradient_accumulation_steps" && t.global_batch_size;
    const bool type = row.key == "compute_dtype" && (t.bf16 || t.fp16 || t.pure_bf16);
    if (config.is_given(row.key) || has_key(settings, row.key) || lora_only || batch || type) continue;
    defaults += fmt::format("{}{} ({})", defaults.empty() ? "" : ", ", row.key, row.value);
  }
  if (defaults.empty()) return;
  config.notes.push_back(
      fmt::format("this run uses ms-swift's keys with LLaMA-Factory's defaults; these keys are not given, and ms-swift's "
                  "defaults differ: {}",
                  defaults));
}

// Scripts of other tools train all weights unless LoRA is requested.
void note_tuner(RunConfig& config, const std::vector<Setting>& settings) {
  const auto speaks_of_lora = [](const auto& given) {
    return given.first == "finetuning_type" || given.first.starts_with("lora_");
  };
  const auto of_scripts = std::find_if(settings.begin(), settings.end(), [](const Setting& s) {
    const ForeignKey* foreign = find_foreign(s.key);
    return foreign != nullptr && foreign->tool == ForeignKey::Tool::other && !foreign->own().empty();
  });
  if (of_scripts == settings.end() || std::any_of(config.given.begin(), config.given.end(), speaks_of_lora)) return;
  config.notes.push_back(fmt::format("finetuning_type is not given: using {}, but tools with the key {} train all weights (full)",
                                     config.finetuning.finetuning_type, of_scripts->key));
}

// Sets the output folders as ms-swift does, for runs with its keys.
void set_swift_folders(RunConfig& config, Purpose purpose) {
  std::string& output = config.training.output_dir;
  if (purpose == Purpose::train && output.empty() && !config.model.model_name_or_path.empty()) {
    const auto model = (std::filesystem::path(config.model.model_name_or_path) / ".").parent_path().filename();
    output = (std::filesystem::path("output") / model).string();
    config.notes.push_back(fmt::format("output_dir is not given: using {}, as in ms-swift", output));
  }
  std::string& exported = config.exporting.export_dir;
  if (purpose != Purpose::export_model || !exported.empty()) return;
  if (output.empty() && config.model.adapter_name_or_path.empty()) return;
  exported = output.empty() ? config.model.adapter_name_or_path.back() + "-merged" : std::exchange(output, "");
  config.notes.push_back(fmt::format("export_dir is not given: using {}, as in ms-swift", exported));
}

}  // namespace

void complete(RunConfig& config, const Translation& translation, Purpose purpose) {
  const Dialect dialect = dialect_of(translation.given);
  if (dialect == Dialect::swift && purpose == Purpose::train) note_swift_defaults(config, translation.given);
  if (dialect == Dialect::own && purpose == Purpose::train) note_tuner(config, translation.given);
  if (dialect == Dialect::swift) set_swift_folders(config, purpose);
  import_launchers(config);
}

}  // namespace qft::dialects
