#include "apply.h"

#include "qft/config/bound_field.h"
#include "qft/config/help.h"
#include "qft/config/nearest.h"
#include "qft/config/store.h"
#include "qft/core/error.h"

#include <algorithm>
#include <cctype>

namespace qft::config {
namespace {

// Such as CUDA_VISIBLE_DEVICES and NPROC_PER_NODE.
bool is_environment(std::string_view name) {
  return std::none_of(name.begin(), name.end(), [](unsigned char c) { return std::islower(c) != 0; });
}

[[noreturn]] void fail_unknown(const Setting& setting, const std::vector<BoundField>& fields, const Dialects& dialects) {
  if (is_environment(setting.key))
    fail_config("{}: not a key: set environment variables before the command; mpirun -np N or srun sets the number of ranks",
                setting.where);
  std::vector<std::string_view> names;
  for (const BoundField& bound : fields) names.push_back(bound.field.name);
  for (const std::string_view name : dialects.names()) names.push_back(name);
  fail_config("{}: unknown key{}", setting.where, suggestion(setting.key, names, "see qft train --help"));
}

// True if both values are equal as texts, numbers, flags or lists.
bool same_value(const Value& a, const Value& b) {
  if (a.kind != b.kind) return false;
  if (a.kind != Value::Kind::scalar) return as_json(a) == as_json(b);
  const auto x = as_double(a), y = as_double(b);
  const auto p = as_bool(a), q = as_bool(b);
  return a.text == b.text || (x && x == y) || (p && p == q);
}

// Keeps the later of two settings for one key. Two names for one key in the same place must agree.
std::vector<Setting> effective(std::vector<Setting> settings) {
  std::vector<Setting> kept;
  for (Setting& setting : settings) {
    const auto earlier = std::find_if(kept.begin(), kept.end(), [&](const Setting& s) { return s.key == setting.key; });
    if (earlier == kept.end()) {
      kept.push_back(std::move(setting));
      continue;
    }
    const bool two_names = earlier->name() != setting.name() && earlier->from_file() == setting.from_file();
    if (two_names && !same_value(earlier->value, setting.value)) {
      fail_config("{} is {}, but {} is {}, and both set {}: keep one", setting.where, describe(setting.value), earlier->where,
                  describe(earlier->value), setting.key);
    }
    *earlier = std::move(setting);
  }
  return kept;
}

// Applies another tool's defaults to keys that nothing else sets. They do not count as given.
void apply_defaults(RunConfig& config, const Translation& translation, const std::vector<Setting>& all, Purpose purpose) {
  RunConfig fresh;
  const std::vector<BoundField> fields = bound_fields(config), initial = bound_fields(fresh);
  const auto is_set = [&](std::string_view key) {
    return std::any_of(all.begin(), all.end(), [&](const Setting& s) { return s.key == key; });
  };
  std::string taken;
  for (const Translation::Default& row : translation.defaults) {
    if (std::ranges::any_of(row.unless, is_set) || is_set(row.key) || !reads_key(purpose, row.key)) continue;
    const BoundField* bound = find_field(fields, row.key);
    QFT_ASSERT(bound != nullptr, "a table of defaults names '{}', which is not a key", row.key);
    const Value value{.kind = Value::Kind::scalar, .text = std::string(row.value)};
    store(bound->field, bound->ref, initial[bound - fields.data()].ref, value, row.key);
    taken += fmt::format("{}{}: {}", taken.empty() ? "" : ", ", row.key, row.value);
  }
  if (taken.empty()) return;
  config.notes.push_back(fmt::format("{}: {}", translation.defaults_reason, taken));
}

// Applies the settings of the run that wrote the adapter or model to keys that nothing else sets.
void apply_earlier_run(RunConfig& config, std::vector<Setting> earlier, std::vector<Setting>& all) {
  std::string taken, file;
  for (Setting& setting : earlier) {
    if (std::ranges::find(all, setting.key, &Setting::key) != all.end()) continue;
    taken += fmt::format("{}{} {}", taken.empty() ? "" : ", ", setting.key, describe(setting.value));
    file = setting.source;
    all.push_back(std::move(setting));
  }
  if (!taken.empty()) config.notes.push_back(fmt::format("settings taken from {}: {}", file, taken));
}

}  // namespace

std::vector<Setting> settings_of(const Value& document, std::string_view file) {
  std::vector<Setting> settings;
  if (document.kind == Value::Kind::null) return settings;
  if (document.kind != Value::Kind::map) {
    fail_config(
        "{}:{}: expected 'key: value' lines, got {}: write a colon and a space between a key and its value, as in 'stage: sft'",
        file, document.line, describe(document));
  }
  for (const auto& [key, value] : document.entries) {
    const std::string source = fmt::format("{}:{}", file, value.line);
    settings.push_back({key, value, source, fmt::format("{}: {}", source, key)});
  }
  return settings;
}

Setting override_setting(const std::string& text) {
  require_utf8(text, "command line");
  const std::size_t sign = text.find('=');
  const std::size_t begin = text.starts_with("--") ? 2 : 0;
  if (sign <= begin || sign == std::string::npos) {
    fail_config("command line: '{}' is not an override: write key=value", text);
  }
  std::string key = text.substr(begin, sign - begin);
  std::replace(key.begin(), key.end(), '-', '_');
  const std::string where = fmt::format("command line: {}", text);
  Value value;
  value.text = text.substr(sign + 1);
  // The shell has removed the quotes: everything but null is a text, and its key decides the type.
  const bool null = value.text.empty() || value.text == "null" || value.text == "~";
  value.kind = null ? Value::Kind::null : Value::Kind::scalar;
  return {std::move(key), std::move(value), "command line", where};
}

void apply_settings(RunConfig& config, Translation translation, const Dialects& dialects, Purpose purpose, bool expand_paths) {
  RunConfig fresh;
  const std::vector<BoundField> fields = bound_fields(config), initial = bound_fields(fresh);
  config.notes.insert(config.notes.end(), translation.notes.begin(), translation.notes.end());
  const auto is_of_ranks = [](const WorldClaim& claim) { return claim.kind == WorldClaim::Kind::ranks; };
  if (std::ranges::any_of(translation.claims, is_of_ranks)) std::erase_if(config.world_claims, is_of_ranks);  // of run.json
  config.world_claims.insert(config.world_claims.end(), translation.claims.begin(), translation.claims.end());
  std::vector<Setting> all = effective(std::move(translation.settings));
  for (Setting& fallback : translation.fallbacks) {
    const bool set = std::any_of(all.begin(), all.end(), [&](const Setting& s) { return s.key == fallback.key; });
    if (set) continue;
    config.notes.push_back(
        fmt::format("{} is not given: using {}, because of {}", fallback.key, describe(fallback.value), fallback.where));
    all.push_back(std::move(fallback));
  }
  const std::size_t given = all.size();
  apply_earlier_run(config, std::move(translation.earlier), all);
  for (const Setting& setting : all) {
    const BoundField* bound = find_field(fields, setting.key);
    if (bound == nullptr) fail_unknown(setting, fields, dialects);
    const FieldRef reset = initial[bound - fields.data()].ref;
    try {
      store(bound->field, bound->ref, reset, setting.value, setting.where, expand_paths);
    } catch (const ConfigError& error) {
      if (&setting < all.data() + given) throw;
      fail_config("{} (set load_args: false to ignore that file)", error.what());
    }
    config.given[setting.key] = setting.source;
  }
  apply_defaults(config, translation, all, purpose);
}

}  // namespace qft::config
