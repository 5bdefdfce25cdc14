#include "apply.h"

#include "qft/config/nearest.h"
#include "qft/core/error.h"

#include <algorithm>

#include "bound_field.h"
#include "foreign_keys.h"
#include "store.h"

namespace qft::config {
namespace {

using Class = ForeignKey::Class;

[[noreturn]] void fail_unknown(const Setting& setting, const std::vector<BoundField>& fields) {
  std::vector<std::string_view> names;
  for (const BoundField& bound : fields) names.push_back(bound.field.name);
  for (const ForeignKey& key : foreign_keys()) names.push_back(key.name);
  fail_config("{}: unknown key{}", setting.where, suggestion(setting.key, names, "see qft train --help"));
}

// The settings that count, under the names of the fields: of two for one key the later, unless one file has
// both.
std::vector<Setting> effective(const std::vector<Setting>& settings) {
  std::vector<Setting> kept;
  for (Setting setting : settings) {
    const ForeignKey* foreign = find_foreign(setting.key);
    if (foreign != nullptr && foreign->kind == Class::renamed) setting.key = foreign->reason;
    const auto earlier =
        std::find_if(kept.begin(), kept.end(), [&](const Setting& s) { return s.key == setting.key; });
    if (earlier == kept.end()) {
      kept.push_back(std::move(setting));
      continue;
    }
    if (earlier->value.line > 0 && setting.value.line > 0) {
      fail_config("{}: the same setting as {}: remove one", setting.where, earlier->where);
    }
    *earlier = std::move(setting);
  }
  return kept;
}

void apply_foreign(RunConfig& config, const Setting& setting, const ForeignKey& key) {
  if (is_harmless(key.harmless, setting.value)) return;
  if (key.kind == Class::refused) {
    fail_config("{}: {} is refused: {}", setting.where, describe(setting.value), key.reason);
  }
  config.notes.push_back(fmt::format("{} has no effect here: {}", setting.where, key.reason));
}

}  // namespace

std::vector<Setting> settings_of(const Value& document, std::string_view file) {
  std::vector<Setting> settings;
  if (document.kind == Value::Kind::null) return settings;
  if (document.kind != Value::Kind::map) {
    fail_config("{}: expected 'key: value' lines, got {}", file, describe(document));
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
  if (sign == 0 || sign == std::string::npos) {
    fail_config("command line: '{}' is no override: write key=value", text);
  }
  Value value;
  value.text = text.substr(sign + 1);
  // The shell has taken the quotes away: everything but null is a text that its key gives a meaning.
  const bool null = value.text.empty() || value.text == "null" || value.text == "~";
  value.kind = null ? Value::Kind::null : Value::Kind::scalar;
  return {text.substr(0, sign), value, "command line", fmt::format("command line: {}", text)};
}

void apply_settings(RunConfig& config, const std::vector<Setting>& settings, bool expand_paths) {
  RunConfig fresh;
  const std::vector<BoundField> fields = bound_fields(config), initial = bound_fields(fresh);
  for (const Setting& setting : effective(settings)) {
    const BoundField* bound = find_field(fields, setting.key);
    if (bound != nullptr) {
      const FieldRef reset = initial[bound - fields.data()].ref;
      store(bound->field, bound->ref, reset, setting.value, setting.where, expand_paths);
      config.given[setting.key] = setting.source;
      continue;
    }
    const ForeignKey* foreign = find_foreign(setting.key);
    if (foreign == nullptr) fail_unknown(setting, fields);
    apply_foreign(config, setting, *foreign);
  }
}

}  // namespace qft::config
