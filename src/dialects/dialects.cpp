#include "qft/dialects/dialects.h"

#include "qft/core/error.h"

#include <algorithm>
#include <filesystem>
#include <string>
#include <utility>

#include "config_names.h"
#include "foreign_keys.h"
#include "import_table.h"
#include "translate.h"
#include <fmt/ranges.h>

namespace qft::dialects {
namespace {

std::string_view tool_name(ForeignKey::Tool tool) {
  switch (tool) {
    case ForeignKey::Tool::llama_factory:
      return "LLaMA-Factory, transformers";
    case ForeignKey::Tool::llama_factory_v1:
      return "version 1 of LLaMA-Factory";
    case ForeignKey::Tool::swift:
      return "ms-swift";
    case ForeignKey::Tool::megatron:
    case ForeignKey::Tool::megatron_core:
      return "Megatron";
    case ForeignKey::Tool::other:
      break;
  }
  return "other tools";
}

std::string words_of(std::initializer_list<Word> words) {
  std::string text;
  for (const Word& word : words) text += fmt::format("{}{}={}", text.empty() ? "" : "|", word.theirs, word.ours);
  return text;
}

/// Returns a line for each case: "  null or 0: nothing", "  any other: tensor_parallel = the same".
std::string cases_of(const Converted& row) {
  std::string text;
  bool any = false;
  for (const Case& c : row.cases) {
    const bool rest = std::ranges::find(c.values, "*") != c.values.end();
    any = any || rest;
    text += fmt::format("  {}:", rest ? "any other" : fmt::format("{}", fmt::join(c.values, " or ")));
    if (c.sets.size() == 0) text += " nothing";
    for (const Assignment& set : c.sets)
      text += fmt::format(" {} = {}{}", set.key, rest && std::string_view(set.value) == "*" ? "the same" : set.value,
                          set.if_unset ? " (if not set)" : "");
    text += "\n";
  }
  return any ? text : text + fmt::format("  qft refuses any other value: {}\n", row.otherwise);
}

/// Returns the meaning of the key in qft, or the reason why qft refuses or ignores it, as lines.
std::string describe_foreign(const ForeignKey& key) {
  const std::string head = fmt::format("{} ({})", key.name, tool_name(key.tool));
  if (const auto* row = key.as<Renamed>())
    return fmt::format("{} is called {} in qft{}\n", head, row->key,
                       row->words.size() == 0 ? "" : fmt::format("; its values in qft: {}", words_of(row->words)));
  if (const auto* row = key.as<Converted>()) return fmt::format("{} sets keys depending on its value:\n{}", head, cases_of(*row));
  if (const auto* row = key.as<Either>()) return fmt::format("{} has two meanings: {}\n", head, row->meanings);
  if (const auto* row = key.as<NoEffect>())
    return fmt::format("{} has no effect in qft: {}\n{}", head, row->reason,
                       row->values.size() == 0 ? ""
                                               : fmt::format("  qft refuses values other than {}: {}\n",
                                                             fmt::join(row->values, "|"), row->otherwise));
  if (const auto* row = key.as<Refused>())
    return fmt::format("qft refuses {}: {}\n{}", head, row->reason,
                       row->harmless.size() == 0
                           ? ""
                           : fmt::format("  accepted values, because they change nothing: {}\n", fmt::join(row->harmless, "|")));
  if (key.is<Section>()) return fmt::format("{} is a section; qft reads its keys (docs/coming_from.md)\n", head);
  if (key.is<Ranks>()) return fmt::format("{} must equal the number of ranks\n", head);
  if (key.is<DataRanks>())
    return fmt::format("{} must equal the number of data ranks: ranks / (tensor_parallel x context_parallel)\n", head);
  return fmt::format("{} works together with other keys of its tool\n", head);
}

/// True if the key's value is also the value of qft's key `own`.
bool gives(const ForeignKey& key, std::string_view own) {
  if (key.as<Renamed>() != nullptr) return key.own() == own;
  const auto* row = key.as<Converted>();
  return row != nullptr && std::ranges::any_of(row->cases, [&](const Case& c) {
           return std::ranges::any_of(
               c.sets, [&](const Assignment& set) { return set.key == own && set.value == std::string_view("*"); });
         });
}

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

// Sets the output folders as ms-swift does, for runs with its keys. `root` is its folder for training.
void set_swift_folders(RunConfig& config, Purpose purpose, std::string_view root) {
  std::string& output = config.training.output_dir;
  if (purpose == Purpose::train && output.empty() && !config.model.model_name_or_path.empty()) {
    const auto model = (std::filesystem::path(config.model.model_name_or_path) / ".").parent_path().filename();
    output = (std::filesystem::path(root) / model).string();
    config.notes.push_back(fmt::format("output_dir is not given: using {}, as in ms-swift", output));
  }
  std::string& exported = config.exporting.export_dir;
  if (purpose != Purpose::export_model || !exported.empty()) return;
  if (output.empty() && config.model.adapter_name_or_path.empty()) return;
  exported = output.empty() ? config.model.adapter_name_or_path.back() + "-merged" : std::exchange(output, "");
  config.notes.push_back(fmt::format("export_dir is not given: using {}, as in ms-swift", exported));
}

/// Adds the folders that ms-swift would choose, notes the defaults that differ from those of the settings' tool, and imports the
/// files of launchers. Reads files.
void complete(RunConfig& config, const Translation& translation, Purpose purpose) {
  const Dialect dialect = dialect_of(translation.given);
  if (dialect == Dialect::swift && purpose == Purpose::train) note_swift_defaults(config, translation.given);
  if (dialect == Dialect::own && purpose == Purpose::train) note_tuner(config, translation.given);
  if (dialect == Dialect::swift) set_swift_folders(config, purpose, "output");
  if (dialect == Dialect::megatron) set_swift_folders(config, purpose, "megatron_output");
  import_launchers(config);
}

class AllDialects final : public config::Dialects {
 public:
  std::optional<Key> find(std::string_view name) const override {
    const ForeignKey* foreign = find_foreign(name);
    if (foreign == nullptr) return std::nullopt;
    return Key{.own = foreign->own(), .renames = foreign->as<Renamed>() != nullptr};
  }
  std::vector<std::string_view> names() const override {
    std::vector<std::string_view> names;
    for (const ForeignKey& key : foreign_keys())
      if (has_effect(key)) names.push_back(key.name);
    return names;
  }
  std::vector<std::string_view> names_of(std::string_view own) const override {
    std::vector<std::string_view> names;
    for (const ForeignKey& key : foreign_keys())
      if (gives(key, own) && key.name != own) names.push_back(key.name);
    return names;
  }
  std::vector<std::string> launcher_names_of(std::string_view own) const override { return dialects::launcher_names_of(own); }
  std::string describe(std::string_view name) const override { return describe_foreign(*find_foreign(name)); }
  Translation translate(std::vector<Setting> settings, Purpose purpose) const override {
    return dialects::translate(std::move(settings), purpose);
  }
  void complete(RunConfig& config, const Translation& translation, Purpose purpose) const override {
    dialects::complete(config, translation, purpose);
  }
};

}  // namespace

const config::Dialects& all() {
  static const AllDialects dialects;
  return dialects;
}

}  // namespace qft::dialects
