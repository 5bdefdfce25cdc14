#include "qft/config/bound_field.h"
#include "qft/config/dialects.h"
#include "qft/config/help.h"
#include "qft/config/run_config.h"
#include "qft/config/saved_run.h"
#include "qft/config/start.h"
#include "qft/config/value.h"
#include "qft/core/error.h"
#include "qft/core/file_ending.h"

#include <algorithm>
#include <iterator>
#include <tuple>
#include <utility>

#include "apply.h"

namespace qft::config {
namespace {

void note_winner(RunConfig& config, std::string_view winner, std::string_view loser) {
  config.notes.push_back(fmt::format("{} overrides {}, which has no effect", at_key(config, winner), at_key(config, loser)));
}

// For runs without training: notes which key sets the compute type, and that nothing is trained if that may be a surprise.
void note_inference(RunConfig& config, Purpose purpose) {
  const TrainingArgs& t = config.training;
  if (purpose == Purpose::train && !config.is_given("do_train")) {
    config.notes.push_back(fmt::format("{} without do_train: nothing is trained; do_train: true trains first",
                                       at_key(config, t.do_predict ? "do_predict" : "do_eval")));
  }
  if (config.model.infer_dtype == "auto" || purpose == Purpose::export_model) return;
  for (const auto& [key, asks] :
       {std::pair{"bf16", t.bf16}, {"fp16", t.fp16}, {"pure_bf16", t.pure_bf16}, {"compute_dtype", t.compute_dtype != "auto"}})
    if (asks) note_winner(config, "infer_dtype", key);
}

bool pack_decides_stage(const RunConfig& config) {
  return !config.is_given("stage") && !config.data.pack.empty();
}

// Notes given keys of stages that this run does not read.
void note_stage(RunConfig& config) {
  const FinetuningArgs& f = config.finetuning;
  const Stage& stage = config.stage();
  std::vector<std::string_view> noted;
  for (const Stage& other : stages())
    for (const StageKey& row : other.keys) {
      if (!config.is_given(row.key) || std::ranges::find(noted, row.key) != noted.end()) continue;
      const std::string reason = stage.unread_reason(row.key, config);
      if (reason.empty()) continue;
      noted.push_back(row.key);
      if (!pack_decides_stage(config))
        config.notes.push_back(fmt::format("{} has no effect: {}", at_key(config, row.key), reason));
    }
  if (stage.has_pairs() && config.is_given("share_prompts") && f.share_prompts && !config.unshared_prompts_reason().empty())
    config.notes.push_back(
        fmt::format("{} has no effect: {}", at_key(config, "share_prompts"), config.unshared_prompts_reason()));
}

// Notes which of two training keys for the same thing applies.
void note_training(RunConfig& config) {
  const TrainingArgs& t = config.training;
  const auto wins = [&](std::string_view winner, std::string_view loser) { note_winner(config, winner, loser); };
  if (config.model.infer_dtype != "auto") {
    config.notes.push_back(fmt::format("{} has no effect in training: bf16, fp16, pure_bf16 and compute_dtype decide",
                                       at_key(config, "infer_dtype")));
  }
  if (t.warmup_steps >= 1 && t.warmup_ratio > 0) {
    config.notes.push_back(fmt::format("{} overrides {}, as in transformers 4; transformers 5 would use the latter",
                                       at_key(config, "warmup_steps"), at_key(config, "warmup_ratio")));
  }
  if (t.optim == "paged_adamw_8bit")
    config.notes.push_back(
        fmt::format("{} means adamw_8bit in qft: its state is not paged; offload_optimizer: cpu keeps the state in host memory",
                    at_key(config, "optim")));
  if (t.trace.empty() && config.is_given("trace_steps"))
    config.notes.push_back(fmt::format("{} has no effect: trace names no file", at_key(config, "trace_steps")));
  const auto of_optimizer = [&](std::string_view optim, std::initializer_list<const char*> keys) {
    for (const char* key : keys)
      if ((t.optim != optim || !t.optim_args.empty()) && config.is_given(key))
        config.notes.push_back(fmt::format("{} has no effect: {}", at_key(config, key),
                                           t.optim != optim ? "optim is " + t.optim : "optim_args is given"));
  };
  of_optimizer("galore_adamw", {"galore_rank", "galore_update_interval", "galore_scale", "galore_proj_type"});
  of_optimizer("apollo_adamw", {"apollo_rank", "apollo_update_interval", "apollo_scale", "apollo_proj", "apollo_proj_type",
                                "apollo_scale_type", "apollo_scale_front"});
  note_stage(config);
  if (!config.stage().lora_dropout && config.finetuning.lora_dropout > 0) {
    config.notes.push_back(fmt::format("{} has no effect: as in LLaMA-Factory and TRL, stage {} trains without dropout",
                                       at_key(config, "lora_dropout"), config.finetuning.stage));
  }
  const std::string& method = config.finetuning.finetuning_type;
  const auto of_method = [&](bool used, std::initializer_list<const char*> keys) {
    for (const char* key : keys)
      if (!used && config.is_given(key))
        config.notes.push_back(
            fmt::format("{} has no effect: {} is {}", at_key(config, key), at_key(config, "finetuning_type"), method));
  };
  of_method(method == "freeze", {"freeze_trainable_layers", "freeze_trainable_modules", "freeze_extra_modules"});
  of_method(method == "oft",
            {"oft_rank", "oft_block_size", "oft_target", "use_cayley_neumann", "num_cayley_neumann_terms", "block_share"});
  of_method(method != "oft", {"lora_rank", "lora_alpha", "lora_dropout", "lora_target", "lora_target_parameters"});
  for (const char* key : {"pissa_iter", "pissa_convert"})
    if (!config.finetuning.pissa_init && config.is_given(key))
      config.notes.push_back(fmt::format("{} has no effect: pissa_init is false", at_key(config, key)));
  if (t.max_steps > 0 && config.is_given("num_train_epochs")) wins("max_steps", "num_train_epochs");
  if (t.global_batch_size && config.is_given("gradient_accumulation_steps")) {
    wins("global_batch_size", "gradient_accumulation_steps");
  }
  if (t.gradient_checkpointing == true && config.model.disable_gradient_checkpointing) {
    wins("gradient_checkpointing", "disable_gradient_checkpointing");
  }
  if (config.finetuning.compute_accuracy && !config.stage().label_mean && !pack_decides_stage(config))
    config.notes.push_back(fmt::format("{} has no effect: {} is {}", at_key(config, "compute_accuracy"), at_key(config, "stage"),
                                       config.finetuning.stage));
}

void note_packing(RunConfig& config) {
  if (config.data.packing == true && !config.data.neat_packing && config.stage().sample == SampleKind::conversation) {
    config.notes.push_back(
        fmt::format("{}: samples in one row do not attend to each other, as with neat_packing", at_key(config, "packing")));
  }
}

// Notes precedence among the keys that the program reads.
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

// Notes keys on the command line that the program does not read. A run file serves several programs, but the command line only
// one.
void note_unread(RunConfig& config, const std::vector<Setting>& settings, Purpose purpose, const Dialects& dialects) {
  if (purpose == Purpose::any || purpose == Purpose::train || purpose == Purpose::plan || purpose == Purpose::check) return;
  for (const Setting& setting : settings) {
    const auto foreign = dialects.find(setting.key);
    const bool loads_data = setting.key == "load_data_args" && as_bool(setting.value) == true;
    if (setting.from_file() || (foreign && !foreign->renames && !loads_data)) continue;
    const std::string_view key = !foreign || loads_data ? std::string_view(setting.key) : foreign->own;
    if (!loads_data && (!config.is_given(key) || reads_key(purpose, key))) continue;
    if (purpose == Purpose::generate && (key == "dataset" || key == "eval_dataset" || loads_data))
      fail_config(
          "{}: qft chat and qft generate read no datasets: use qft generate --input FILE --output FILE to answer a file, or qft "
          "eval with predict_with_generate=true and output_dir=DIR to score answers too",
          setting.where);
    if (loads_data) continue;
    config.notes.push_back(fmt::format("{} has no effect in this program (--help lists its keys)", setting.where));
  }
}

// A program that does not compute with the model runs on any number of ranks, whatever the run file's training needs.
void leave_degrees_to_others(RunConfig& config, Purpose purpose) {
  if (reads_key(purpose, "tensor_parallel")) return;
  config.parallel.tensor_parallel = config.parallel.context_parallel = 1;
  std::erase_if(config.world_claims, [](const WorldClaim& claim) {
    return claim.kind == WorldClaim::Kind::data_ranks || claim.kind == WorldClaim::Kind::whole_micro_batches;
  });
}

// Replaces a YAML file among the datasets (as in LLaMA-Factory's version 1) by all datasets that it describes. For `plan` the
// file may be missing.
void expand_dataset_files(const RunConfig& config, std::string_view key, bool plan, std::vector<std::string>& names) {
  std::vector<std::string> all;
  for (const std::string& name : names) {
    if (!is_yaml_file(name)) {
      all.push_back(name);
      continue;
    }
    std::error_code code;
    const bool found = std::filesystem::is_regular_file(name, code);
    if (!found && plan) {
      all.push_back(name);
      continue;
    }
    if (!found)
      fail_config("{}: there is no file {} to describe the datasets (download it first if it is on a hub)", at_key(config, key),
                  name);
    const Value document = parse_file(name);
    if (document.kind != Value::Kind::map || document.entries.empty())
      fail_config("{}: {} describes no datasets: expected names with path, source and converter, got {}", at_key(config, key),
                  name, describe(document));
    for (const auto& [dataset, entry] : document.entries) all.push_back(fmt::format("{}:{}", name, dataset));
  }
  names = std::move(all);
}

// Reads the settings of a run file, or of an earlier run's run.json.
std::vector<Setting> settings_in_file(RunConfig& config, const std::filesystem::path& file, const std::vector<Setting>& overrides,
                                      Purpose purpose) {
  const Value document = parse_file(file);
  if (is_json_file(file) && settings_in(document) != nullptr)
    return settings_to_repeat(document, file.string(), overrides, purpose, config.world_claims);
  return settings_of(document, file.string());
}

}  // namespace

void take_base_model_from_adapter(RunConfig& config) {
  if (!config.model.model_name_or_path.empty() || config.model.adapter_name_or_path.empty()) return;
  const auto file = std::filesystem::path(config.folder_of(config.model.adapter_name_or_path.front())) /
                    config.model.adapter_folder / "adapter_config.json";
  std::error_code code;
  if (!std::filesystem::is_regular_file(file, code)) return;
  const nlohmann::json adapter = as_json(parse_file(file));
  const auto base = adapter.find("base_model_name_or_path");
  if (base == adapter.end() || !base->is_string()) return;
  config.model.model_name_or_path = base->get<std::string>();
  config.notes.push_back(
      fmt::format("model_name_or_path is not given: using {} from {}", config.model.model_name_or_path, file.string()));
}

RunConfig load_run_config(const std::filesystem::path& file, std::span<const std::string> overrides, Purpose purpose) {
  return load_run_config(file, overrides, purpose, kOwnKeysOnly);
}

RunConfig load_run_config(const std::filesystem::path& file, std::span<const std::string> overrides, Purpose purpose,
                          const Dialects& dialects) {
  RunConfig config;
  config.source = file;
  std::vector<Setting> settings;
  std::vector<Setting> typed;
  for (const std::string& text : overrides) typed.push_back(override_setting(text));
  if (!file.empty()) settings = settings_in_file(config, file, typed, purpose);
  settings.insert(settings.end(), std::make_move_iterator(typed.begin()), std::make_move_iterator(typed.end()));
  const Translation translation = dialects.translate(std::move(settings), purpose);
  apply_settings(config, translation, dialects, purpose);
  if (reads_key(purpose, "dataset")) {
    expand_dataset_files(config, "dataset", purpose == Purpose::plan, config.data.dataset);
    expand_dataset_files(config, "eval_dataset", purpose == Purpose::plan, config.data.eval_dataset);
  }
  take_base_model_from_adapter(config);
  dialects.complete(config, translation, purpose);
  leave_degrees_to_others(config, purpose);
  config.resolve();
  config.validate(purpose);
  note_unread(config, translation.given, purpose, dialects);
  note_precedence(config, purpose);
  return config;
}

}  // namespace qft::config
