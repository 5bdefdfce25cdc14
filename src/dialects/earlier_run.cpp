#include "qft/config/expand_path.h"
#include "qft/config/help.h"
#include "qft/config/saved_run.h"
#include "qft/config/stages.h"
#include "qft/config/store.h"
#include "qft/core/error.h"
#include "qft/core/file_ending.h"
#include "qft/core/log.h"

#include <algorithm>
#include <filesystem>
#include <optional>
#include <string_view>

#include "key_rows.h"
#include "translate.h"

namespace qft::dialects {
namespace {

namespace fs = std::filesystem;

enum class Part { base, rope, type, quantization, form, text, data };
struct PartKeys {
  Part part;
  Names keys;
};
// base and rope apply to adapters only: a full model's files contain them. If any key of base, rope, type or quantization is
// given, no key of that part is taken. If another template is given, no key of form is taken.
constexpr PartKeys kPartKeys[] = {
    {Part::base, {"model_revision"}},
    {Part::rope, {"rope_scaling", "cutoff_len"}},  // positions are scaled to the run's cutoff_len
    {Part::type, {"bf16", "fp16", "pure_bf16", "compute_dtype", "infer_dtype"}},
    {Part::quantization, {"quantization_bit", "quantization_method", "quantization_type", "double_quantization"}},
    {Part::form, {"template", "tool_format", "enable_thinking", "preserve_thinking"}},
    {Part::text, {"default_system"}},
    {Part::data,
     {"dataset", "eval_dataset", "dataset_dir", "pack", "eval_pack", "mix_strategy", "interleave_probs", "max_samples",
      "val_size", "seed", "data_seed", "cutoff_len", "train_on_prompt", "mask_history", "loss_scale", "on_error"}},
};

// Keys of stages that change the texts: other values than in training give other vectors.
constexpr std::string_view kPromptKeys[] = {"query_prompt", "document_prompt"};

// Keys that determine the held-out samples.
constexpr std::string_view kHoldOutKeys[] = {"mix_strategy", "interleave_probs", "max_samples", "val_size", "seed", "data_seed"};

const Setting* find(const std::vector<Setting>& settings, std::string_view key) {
  const auto found = std::find_if(settings.rbegin(), settings.rend(), [&](const Setting& s) { return s.key == key; });
  return found == settings.rend() || found->value.kind == Value::Kind::null ? nullptr : &*found;
}

/// Returns the flag of the first given key in `names`.
std::optional<bool> flag_of(const std::vector<Setting>& settings, std::initializer_list<const char*> names) {
  for (const char* name : names) {
    const Setting* setting = find(settings, name);
    if (setting == nullptr) continue;
    const auto flag = as_bool(setting->value);
    if (!flag) fail_config("{}: expected true or false, got {}", setting->where, describe(setting->value));
    return flag;
  }
  return std::nullopt;
}

/// The adapter or model in use: the last adapter (the others are merged before it), else the model.
struct UsedModel {
  std::string typed;
  fs::path folder;
  bool is_adapter = false;
};
std::optional<UsedModel> used_folder(const std::vector<Setting>& own) {
  const auto last_of = [&](const char* key, bool is_list) -> std::optional<UsedModel> {
    const Setting* setting = find(own, key);
    if (setting == nullptr) return std::nullopt;
    const Value value = parse_nested(setting->value, setting->where);
    const std::string text = value.items.empty() ? value.text : value.items.back().text;
    const bool list = is_list && value.items.empty();
    const std::size_t end = list ? text.find_last_not_of(',') + 1 : text.size();
    const std::size_t comma = list && end > 0 ? text.rfind(',', end - 1) : std::string::npos;
    const std::size_t begin = text.find_first_not_of(' ', comma == std::string::npos ? 0 : comma + 1);
    if (end == 0) return std::nullopt;
    const std::string typed = begin < end ? text.substr(begin, end - begin) : "";
    return UsedModel{typed, fs::absolute(config::expand_path(typed, setting->where))};
  };
  if (auto adapter = last_of("adapter_name_or_path", true)) {
    adapter->is_adapter = true;
    if (const Setting* below = find(own, "adapter_folder")) adapter->folder /= below->value.text;
    return adapter;
  }
  return last_of("model_name_or_path", false);
}

/// Looks beside the weights and, for a checkpoint, in the output_dir above.
std::optional<fs::path> run_file_in(const fs::path& folder) {
  std::error_code code;
  const fs::path plain = (folder / ".").lexically_normal().parent_path();
  if (fs::is_regular_file(plain / config::kSavedRun, code)) return plain / config::kSavedRun;
  const fs::path above = plain.parent_path() / config::kSavedRun;
  if (plain.filename().string().starts_with("checkpoint-") && fs::is_regular_file(above, code)) return above;
  return std::nullopt;
}

/// True if the run with these settings had something to evaluate.
bool evaluates(const Value& settings) {
  const auto has = [&](const char* key) {
    const Value* value = member(settings, key);
    return value != nullptr && (!value->items.empty() || (value->kind == Value::Kind::scalar && !value->text.empty()));
  };
  const Value* share = member(settings, "val_size");
  return has("eval_dataset") || has("eval_pack") || (share != nullptr && as_double(*share).value_or(0) > 0);
}

/// Requires the same value as in the run: another one would hold out other samples and evaluate on trained ones.
void require_same(std::string_view key, const Value* theirs, const std::vector<Setting>& own, const fs::path& file) {
  const Setting* given = find(own, key);
  if (given == nullptr || theirs == nullptr || theirs->text == given->value.text) return;
  fail_config("{}: {} is {}, but the run of {} had {}; another value holds out other samples: remove it, or name the data",
              given->where, key, describe(given->value), file.string(), describe(*theirs));
}

/// True if the given template differs from the run's, or if the run's template file is gone (the adapter's folder has a copy).
bool has_other_template(const Value& settings, const std::vector<Setting>& own) {
  const Value* theirs = member(settings, "template");
  const std::string name = theirs == nullptr || theirs->kind != Value::Kind::scalar ? "" : theirs->text;
  const Setting* given = find(own, "template");
  if (given != nullptr) return given->value.text != name;
  std::error_code code;
  return find(own, "chat_template") != nullptr || (is_yaml_file(name) && !fs::is_regular_file(name, code));
}

/// True if no key of this part is taken.
bool is_skipped(const PartKeys& row, const Value& settings, const std::vector<Setting>& own, bool of_adapter, bool with_data) {
  const bool any_given = std::ranges::any_of(row.keys, [&](std::string_view key) { return find(own, key) != nullptr; });
  switch (row.part) {
    case Part::base:
      return !of_adapter || any_given;
    case Part::rope:
      return !of_adapter || any_given || !config::differs_from_default("rope_scaling", member_or_null(settings, "rope_scaling"));
    case Part::type:
    case Part::quantization:
      return any_given;
    case Part::form:
      return has_other_template(settings, own);
    case Part::text:
      return false;
    case Part::data:
      break;
  }
  return !with_data;
}

Setting taken_setting(std::string_view key, const Value& value, const fs::path& file) {
  return {std::string(key), as_typed(value), file.string(), fmt::format("{}: {}", file.string(), key)};
}

/// Warns of a given prompt that differs from the run's.
void warn_of_prompt(std::string_view key, const Value& theirs, const Setting* given, const fs::path& file) {
  if (given == nullptr || std::ranges::find(kPromptKeys, key) == std::end(kPromptKeys) || given->value.text == theirs.text)
    return;
  log::warn_once(fmt::format("{}: {} is {}, but the run of {} trained with {}: remove it to use the model as it was trained",
                             given->where, key, describe(given->value), file.string(), describe(as_typed(theirs))));
}

/// Returns the stage and its keys if the run trained a model that gives vectors, scores of documents or classes, which is
/// useless in another stage. Nothing if another stage is given.
std::vector<Setting> stage_settings(const Value& settings, const fs::path& file, const std::vector<Setting>& own,
                                    Purpose purpose) {
  const config::Stage* stage = config::find_stage(member_or_null(settings, "stage").text);
  if (stage == nullptr || stage->token_labels || purpose == Purpose::export_model) return {};
  if (const Setting* given = find(own, "stage"); given != nullptr && given->value.text != stage->name) return {};
  std::vector<std::string_view> keys = {"stage"};
  for (const config::StageKey& row : stage->keys) keys.push_back(row.key);
  keys.insert(keys.end(), stage->own_keys.keys.begin(), stage->own_keys.keys.end());
  std::vector<Setting> taken;
  for (const std::string_view key : keys) {
    const Value* value = member(settings, key);
    if (value == nullptr || value->kind == Value::Kind::null) continue;
    warn_of_prompt(key, *value, find(own, key), file);
    if (find(own, key) == nullptr && config::differs_from_default(key, *value)) taken.push_back(taken_setting(key, *value, file));
  }
  return taken;
}

std::vector<Setting> settings_from(const Value& settings, const fs::path& file, const std::vector<Setting>& own, Purpose purpose,
                                   bool of_adapter, bool with_data) {
  std::vector<Setting> taken = stage_settings(settings, file, own, purpose);
  for (const PartKeys& row : kPartKeys) {
    const auto is_given = [&](std::string_view key) { return find(own, key) != nullptr; };
    if (is_skipped(row, settings, own, of_adapter, with_data)) continue;
    const bool own_data =
        row.part == Part::data && (is_given("dataset") || is_given("eval_dataset") || is_given("pack") || is_given("eval_pack"));
    for (const std::string_view key : row.keys) {
      const Value* value = member(settings, key);
      if (!own_data && std::ranges::find(kHoldOutKeys, key) != std::end(kHoldOutKeys)) require_same(key, value, own, file);
      if (value == nullptr || value->kind == Value::Kind::null || is_given(key) || !reads_key(purpose, key)) continue;
      if (own_data && key != "cutoff_len") continue;
      if (row.part != Part::rope && !config::differs_from_default(key, *value)) continue;
      if (std::ranges::find(taken, key, &Setting::key) != taken.end()) continue;  // cutoff_len belongs to two parts
      taken.push_back(taken_setting(key, *value, file));
    }
  }
  return taken;
}

/// Returns the file's settings. Ignores a file of another program, unless the user asked for its settings.
std::optional<Value> read_settings(const fs::path& file, bool asked) {
  try {
    const Value document = parse_file(file);
    if (const Value* settings = settings_in(document)) return *settings;
  } catch (const Error&) {
    if (asked) throw;
    return std::nullopt;
  }
  if (asked) fail_config("{} has no settings: set load_args: false, and name the template and the data", file.string());
  return std::nullopt;
}

}  // namespace

std::vector<Setting> settings_of_earlier_run(const std::vector<Setting>& typed, const std::vector<Setting>& own,
                                             Purpose purpose) {
  const bool data = flag_of(typed, {"load_data_args", "load_dataset_config"}).value_or(false);
  const bool all = flag_of(typed, {"load_args", "load_args_from_ckpt_dir"}).value_or(true);
  if (!data && !all) return {};
  const auto used = used_folder(own);
  const auto file = used ? run_file_in(used->folder) : std::nullopt;
  if (!file && data)
    fail_config(
        "load_data_args is true, but {} no {}, which has the settings of a qft run (ms-swift's args.json is not read, because "
        "ms-swift holds out other samples): name the data in eval_dataset",
        used ? fmt::format("'{}' has", used->typed) : "no adapter or model is given, so there is", config::kSavedRun);
  if (!file) return {};
  const bool asked = data || flag_of(typed, {"load_args", "load_args_from_ckpt_dir"}).has_value();
  const std::optional<Value> settings = read_settings(*file, asked);
  if (!settings) return {};
  if (data && !evaluates(*settings))
    fail_config(
        "load_data_args is true, but the run of {} had nothing to evaluate (no val_size, eval_dataset or eval_pack): name the "
        "data in eval_dataset",
        file->string());
  return settings_from(*settings, *file, own, purpose, used->is_adapter, data);
}

}  // namespace qft::dialects
