// What the kinds of adapters read alike in adapter_config.json. Private to model.
#pragma once

#include "qft/core/error.h"
#include "qft/model/adapter_targets.h"

#include <filesystem>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

namespace qft::model {

/// Absent in all but name: null, false, an empty text, or without elements.
inline bool is_empty(const nlohmann::json& value) {
  return value.is_null() || (value.is_boolean() && !value.get<bool>()) || (value.is_string() && value == "") ||
         (value.is_structured() && value.empty());
}

/// The value of a key; `fallback` where it is absent, null or an empty text.
template <class T>
T value_or(const nlohmann::json& config, const char* key, const T& fallback) {
  const auto it = config.find(key);
  return it == config.end() || it->is_null() || (it->is_string() && *it == "") ? fallback : it->get<T>();
}

/// bias, and modules_to_save.
inline void read_common(const nlohmann::json& config, AdapterTargets& targets, const std::string& where) {
  targets.origin = where;
  const auto bias = value_or<std::string>(config, "bias", "none");
  require(bias == "none", "{}: bias '{}' is not implemented (implemented: none)", where, bias);
  if (const nlohmann::json saved = config.value("modules_to_save", nlohmann::json()); !is_empty(saved))
    targets.modules_to_save = saved.get<std::vector<std::string>>();
}

/// target_modules. `more`: names of modules, each with a comma after it.
void read_targets(AdapterTargets& targets, const nlohmann::json& modules, const std::string& more, const std::string& where);
/// Whether an adapter has tensors for the linears of single experts: newer PEFT wraps these as fused parameters or not at all.
bool has_expert_modules(const std::filesystem::path& dir);
/// adapter_config.json of a directory. Throws ConfigError where there is none.
nlohmann::json read_adapter_json(const std::filesystem::path& dir);

}  // namespace qft::model
