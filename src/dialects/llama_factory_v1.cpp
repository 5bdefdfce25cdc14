#include "llama_factory_v1.h"

#include "qft/config/store.h"
#include "qft/core/error.h"

#include <algorithm>
#include <utility>

#include "foreign_keys.h"
#include "sections.h"
#include "setting_values.h"
#include <fmt/ranges.h>

namespace qft::dialects {
namespace {

// Adds a setting that comes from `by`.
void assign(std::string_view key, std::string_view text, const Setting& by, std::vector<Setting>& settings) {
  Value value{.kind = Value::Kind::scalar, .text = std::string(text), .line = by.value.line};
  settings.push_back({std::string(key), std::move(value), by.source, by.where, by.key});
}

// Returns the plugin's keys without their section.
std::vector<std::string_view> keys_of(const V1Plugin& plugin) {
  std::vector<std::string_view> keys;
  for_each_key(plugin.tables, [&](std::string_view name, const ForeignKey::Meaning&) {
    keys.push_back(name.substr(plugin.section.size() + 1));
  });
  return keys;
}

class Reader {
 public:
  explicit Reader(const std::vector<Setting>& settings) : settings_(settings) {
    out_.used = dialect_of(settings) == Dialect::llama_factory_v1;
    const auto first = std::ranges::find_if(settings, [](const Setting& setting) {
      const ForeignKey* foreign = find_foreign(setting.key);
      return foreign != nullptr && foreign->tool == ForeignKey::Tool::llama_factory_v1;
    });
    if (first != settings.end()) out_.key = first->where;
  }

  V1Sections run() && {
    for (const V1Section& section : v1_sections()) read(section);
    if (!out_.used) return {};
    join_muon();
    note_batching();
    for (const Translation::Default& row : v1_defaults()) out_.defaults.push_back(row);
    return std::move(out_);
  }

 private:
  void read(const V1Section& section) {
    const Setting* name = latest(settings_, fmt::format("{}.name", section.name));
    for (const Setting& setting : settings_) {
      if (name != nullptr || !is_below(setting.key, section.name)) continue;
      fail_config("{}: {} has no name; its name selects the keys: {}", setting.where, section.name, section.choices);
    }
    const V1Plugin& plugin = choose(section, name);
    if (name != nullptr) {
      check_keys(plugin, *name);
      for (const Assignment& set : plugin.sets) assign(set.key, set.value, *name, out_.settings);
    }
    for (const Assignment& row : plugin.defaults) out_.defaults.push_back({row.key, row.value});
  }

  static const V1Plugin& choose(const V1Section& section, const Setting* name) {
    static constexpr V1Plugin kNothing{};
    if (name != nullptr && (name->value.kind != Value::Kind::scalar || name->value.text.empty()))
      fail_config("{}: expected a name, got {}: {}", name->where, describe(name->value), section.choices);
    const std::string_view word = name == nullptr ? std::string_view() : std::string_view(name->value.text);
    for (const V1Plugin& plugin : v1_plugins())
      if (plugin.section == section.name && plugin.name == word) return plugin;
    if (name == nullptr) return kNothing;
    fail_config("{}: {} is refused: {}", name->where, describe(name->value), section.choices);
  }

  void check_keys(const V1Plugin& plugin, const Setting& name) const {
    const auto keys = keys_of(plugin);
    for (const Setting& setting : settings_) {
      if (!is_below(setting.key, plugin.section) || setting.key == name.key) continue;
      const std::string_view key = std::string_view(setting.key).substr(plugin.section.size() + 1);
      if (std::find(keys.begin(), keys.end(), key) != keys.end()) continue;
      fail_config("{}: {} with name {} ({}) does not have this key: its keys are {}", setting.where, plugin.section, plugin.name,
                  name.source, fmt::join(keys, ", "));
    }
  }

  // Joins Muon's arguments into optim_args, and reads both betas of the AdamW for other parameters.
  void join_muon() {
    std::string args;
    const Setting* first = nullptr;
    for (const char* key : {"momentum", "nesterov", "ns_steps"}) {
      const Setting* setting = latest(settings_, fmt::format("optim_config.{}", key));
      if (setting == nullptr || setting->value.kind == Value::Kind::null) continue;
      if (setting->value.kind != Value::Kind::scalar)
        fail_config("{}: expected one value, got {}", setting->where, describe(setting->value));
      const auto flag = as_bool(setting->value);
      args += fmt::format("{}{}={}", args.empty() ? "" : ",", key, flag ? (*flag ? "true" : "false") : setting->value.text);
      if (first == nullptr) first = setting;
    }
    if (first != nullptr) assign("optim_args", args, *first, out_.settings);
    const Setting* betas = latest(settings_, "optim_config.adamw_betas");
    if (betas == nullptr || betas->value.kind == Value::Kind::null) return;
    const Value pair = parse_nested(betas->value, betas->where);
    if (pair.kind != Value::Kind::list || pair.items.size() != 2)
      fail_config("{}: expected a list of two numbers, got {}", betas->where, describe(pair));
    for (const auto& [key, value] : {std::pair{"adam_beta1", pair.items[0]}, {"adam_beta2", pair.items[1]}})
      out_.settings.push_back({key, value, betas->source, betas->where, betas->key});
  }

  void note_batching() {
    const Setting* batching = latest(settings_, "batching_strategy");
    if (batching == nullptr || !batching->value.text.starts_with("dynamic_")) return;
    out_.notes.push_back(fmt::format(
        "{}: qft packs samples into rows of cutoff_len tokens, with micro_batch_size rows per micro-batch: the same limit of "
        "tokens, but filled best-fit, while version 1 takes samples in order",
        batching->where));
  }

  const std::vector<Setting>& settings_;
  V1Sections out_;
};

}  // namespace

V1Sections read_v1(const std::vector<Setting>& settings) {
  return Reader(settings).run();
}

}  // namespace qft::dialects
