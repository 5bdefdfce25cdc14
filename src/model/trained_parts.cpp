#include "qft/model/trained_parts.h"

#include "qft/core/error.h"
#include "qft/model/spec.h"

#include <algorithm>

#include <fmt/ranges.h>

namespace qft::model {
namespace {

/// Returns "model.norm" for "model.norm.weight". A tensor without such a suffix belongs to the enclosing module.
std::string_view module_of(std::string_view name) {
  return name.substr(0, name.rfind('.'));
}

std::string_view last_word(std::string_view path) {
  return path.substr(path.rfind('.') + 1);
}

std::string_view first_word(std::string_view path) {
  return path.substr(0, path.find('.'));
}

/// Returns true if the tensor's module, or a module around it, matches.
bool is_saved(const std::string& module, std::string_view name) {
  for (std::string_view path = module_of(name);; path = module_of(path)) {
    if (path.ends_with(module)) return true;
    if (path.find('.') == std::string_view::npos) return false;
  }
}

/// Collects the words that f returns for the base tensors, without empty ones.
template <class F>
std::set<std::string> words_of(const ModelSpec& spec, const F& f) {
  std::set<std::string> words;
  for (const UnitSpec& unit : spec.units)
    for (const ParamSpec& p : unit.params)
      if (p.role == Role::base)
        if (const std::string_view word = f(unit, p); !word.empty()) words.emplace(word);
  return words;
}

void require_known(const char* key, const std::vector<std::string>& names, const std::set<std::string>& known,
                   const ModelSpec& spec) {
  for (const std::string& name : names)
    if (!known.contains(name) && !(name == "all" && &names == &spec.freeze.modules))
      fail_config("{} '{}' is not a module of this {}, which has {}", key, name, spec.config.model_type, fmt::join(known, ", "));
}

void require_freeze(const ModelSpec& spec) {
  require_known("freeze_trainable_modules", spec.freeze.modules,
                words_of(spec, [](const UnitSpec& unit,
                                  const ParamSpec& p) { return unit.layer < 0 ? std::string_view() : first_word(p.path); }),
                spec);
  require_known(
      "freeze_extra_modules", spec.freeze.extra_modules,
      words_of(spec, [](const UnitSpec& unit,
                        const ParamSpec& p) { return unit.layer < 0 ? last_word(module_of(p.name)) : std::string_view(); }),
      spec);
  if (spec.num_params(true) == 0)
    fail_config("freeze_trainable_layers is 0 and freeze_extra_modules is empty: nothing is trained");
}

void require_saved(const ModelSpec& spec) {
  for (const std::string& module : spec.adapter.targets().modules_to_save) {
    const auto found = words_of(spec, [&](const UnitSpec&, const ParamSpec& p) {
      return is_saved(module, p.name) ? std::string_view("found") : std::string_view();
    });
    if (!found.empty()) continue;
    fail_config(
        "{} '{}' is not a module of this {}, which has {}",
        spec.adapter.targets().key_for_errors("additional_target (PEFT's modules_to_save)", "modules_to_save"), module,
        spec.config.model_type,
        fmt::join(words_of(spec, [](const UnitSpec&, const ParamSpec& p) { return last_word(module_of(p.name)); }), ", "));
  }
}

const ParamSpec* find(const UnitSpec& unit, const std::string& path) {
  const auto it = std::ranges::find(unit.params, path, &ParamSpec::path);
  return it == unit.params.end() ? nullptr : &*it;
}

void require_whole_group(const ModelSpec& spec, const UnitSpec& unit, const ParamGroup& group) {
  if (group.linears.empty()) return;
  std::vector<std::string> trained, all;
  for (const LinearSpec& linear : group.linears) {
    const ParamSpec* weight = find(unit, group.is_stack() ? group.stack.path + "." + group.stack.name : linear.path + ".weight");
    QFT_ASSERT(weight != nullptr, "{} has no linear {}", unit.name, linear.path);
    if (weight->trainable) trained.push_back(linear.name);
    all.push_back(linear.name);
  }
  if (trained.empty()) return;
  if (trained.size() < all.size())
    fail_config("additional_target: {} of {} would train, but {} are computed together: name all of them or none",
                fmt::join(trained, ", "), unit.name, fmt::join(all, ", "));
  if (spec.finetuning != Finetuning::adapter) return;
  if (group.is_stack())
    fail_config("additional_target: training experts in full beside an adapter is not implemented: name other modules");
  if (group.is_wrapped())
    fail_config("additional_target: {} of {} would train in full, but {} wraps it: remove it from {} or from additional_target",
                fmt::join(trained, ", "), unit.name, spec.adapter.oft.enabled() ? "OFT" : "LoRA", spec.adapter.targets().key);
}

}  // namespace

bool FreezeConfig::trains(int layer, std::string_view path, std::string_view name) const {
  const bool part = std::ranges::any_of(modules, [&](const std::string& m) { return m == "all" || m == first_word(path); });
  if (layer >= 0 && layers.contains(layer) && part) return true;
  return std::ranges::any_of(extra_modules, [&](const std::string& word) { return name.find(word) != std::string_view::npos; });
}

std::set<std::int64_t> FreezeConfig::last_layers(std::int64_t count, std::int64_t layers) {
  std::set<std::int64_t> chosen;
  const std::int64_t n = std::min(std::abs(count), layers), first = count > 0 ? layers - n : 0;
  for (std::int64_t i = 0; i < n; ++i) chosen.insert(first + i);
  return chosen;
}

std::set<std::int64_t> FreezeConfig::expanded_layers(std::int64_t count, std::int64_t layers) {
  if (count < 1 || layers % count != 0)
    fail_config(
        "use_llama_pro: the model has {} layers, which is not a multiple of freeze_trainable_layers, {}: set it to the number of "
        "layers that the expansion inserted",
        layers, count);
  std::set<std::int64_t> chosen;
  const std::int64_t stride = layers / count;
  for (std::int64_t i = stride - 1; i < layers; i += stride) chosen.insert(i);
  return chosen;
}

bool is_saved_whole(const std::vector<std::string>& modules, std::string_view name) {
  return std::ranges::any_of(modules, [&](const std::string& module) { return is_saved(module, name); });
}

void require_trained_parts(const ModelSpec& spec) {
  if (spec.finetuning == Finetuning::full) return;
  spec.finetuning == Finetuning::freeze ? require_freeze(spec) : require_saved(spec);
  for (std::size_t i = 0; i < spec.layers.size(); ++i)
    for (const SubLayerSpec& sublayer : spec.layers[i])
      for (const ParamGroup& group : sublayer.params) require_whole_group(spec, spec.units[i + 1], group);
}

}  // namespace qft::model
