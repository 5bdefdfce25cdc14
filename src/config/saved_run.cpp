#include "qft/config/saved_run.h"

#include "qft/core/error.h"

#include <algorithm>
#include <filesystem>

#include "apply.h"

namespace qft::config {
namespace {

constexpr std::string_view kBatchKeys[] = {"per_device_train_batch_size", "gradient_accumulation_steps", "global_batch_size"};

/// run.json holds all settings. Returns the given ones and those that do not follow from them.
Value needed(const Value& settings, const Value* given, std::string_view file) {
  const auto is_given = [&](const std::string& key, const Value& value) {
    if (given == nullptr) return differs_from_default(key, value);  // run.json of an earlier version has no list of given keys
    return std::ranges::find(given->items, key, &Value::text) != given->items.end();
  };
  const nlohmann::json defaults = to_json(RunConfig{});
  Value typed{.kind = Value::Kind::map, .line = settings.line}, removed = typed;  // removed: keys of an earlier version
  for (const auto& [key, value] : settings.entries)
    if (is_given(key, value)) (defaults.contains(key) ? typed : removed).entries.emplace_back(key, value);
  RunConfig config = from_json(as_json(typed), file);
  config.resolve();
  const nlohmann::json follows = to_json(config);
  for (const auto& [key, value] : settings.entries)
    if (!is_given(key, value) && follows.contains(key) && follows[key] != as_json(value)) typed.entries.emplace_back(key, value);
  for (auto& entry : removed.entries) typed.entries.push_back(std::move(entry));
  return typed;
}

std::int64_t number_of_ranks(const Value& value, std::string_view file) {
  const auto number = as_int(value);
  if (!number || *number < 1) fail_config("{}: ranks: expected an integer of at least 1, got {}", file, describe(value));
  return *number;
}

}  // namespace

const Value* member(const Value& map, std::string_view key) {
  const auto found = std::find_if(map.entries.begin(), map.entries.end(), [&](const auto& entry) { return entry.first == key; });
  return found == map.entries.end() ? nullptr : &found->second;
}

Value member_or_null(const Value& map, std::string_view key) {
  const Value* found = member(map, key);
  return found == nullptr ? Value{} : *found;
}

const Value* settings_in(const Value& document) {
  const Value* settings = member(document, "settings");
  return settings != nullptr && settings->kind == Value::Kind::map ? settings : nullptr;
}

Value as_typed(const Value& value) {
  if (value.kind != Value::Kind::list) {
    Value plain = value;
    plain.quoted = false;
    return plain;
  }
  Value text{.kind = Value::Kind::scalar};
  for (const Value& item : value.items) text.text += (text.text.empty() ? "" : ",") + item.text;
  return text;
}

bool differs_from_default(std::string_view key, const Value& value) {
  static const nlohmann::json defaults = to_json(RunConfig{});
  const auto found = defaults.find(std::string(key));
  return found == defaults.end() || as_json(value) != *found;
}

std::vector<Setting> settings_to_repeat(const Value& document, std::string_view file, const std::vector<Setting>& overrides,
                                        Purpose purpose, std::vector<WorldClaim>& claims) {
  if (uses_models(purpose))
    fail_config("{} describes a run of qft train: to use the trained model give the run's folder, as in qft chat {}", file,
                std::filesystem::absolute(file).parent_path().string());
  const auto is_batch_size = [](const Setting& s) { return std::ranges::find(kBatchKeys, s.key) != std::end(kBatchKeys); };
  const Value* batch = member(document, "global_batch_size");
  const bool keeps_batch = batch != nullptr && std::ranges::none_of(overrides, is_batch_size);
  const Value settings = needed(*settings_in(document), member(document, "given"), file);
  std::vector<Setting> all = settings_of(settings, file);
  // The effect of scale_lr_by_world_size depends on the number of ranks.
  const auto scales = [](const Setting& s) { return s.key == "scale_lr_by_world_size"; };
  if (const Value* ranks = member(document, "ranks"); ranks != nullptr && std::ranges::none_of(overrides, scales) &&
                                                      as_bool(member_or_null(settings, "scale_lr_by_world_size")) == true)
    claims.push_back({WorldClaim::Kind::ranks, number_of_ranks(*ranks, file), fmt::format("{}: ranks", file)});
  if (!keeps_batch) return all;
  std::erase_if(all, [](const Setting& s) { return s.key == "gradient_accumulation_steps" || s.key == "global_batch_size"; });
  Value one_key{.kind = Value::Kind::map, .entries = {{"global_batch_size", *batch}}};
  all.push_back(settings_of(one_key, file).front());
  return all;
}

}  // namespace qft::config
