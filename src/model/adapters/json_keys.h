// Reading of adapter_config.json that all adapter kinds share. Private to model.
#pragma once

#include "qft/core/error.h"
#include "qft/model/adapter_targets.h"

#include <filesystem>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

namespace qft::model {

/// Returns true for values that mean the same as an absent key: null, false, an empty text or an empty list or object.
inline bool is_empty(const nlohmann::json& value) {
  return value.is_null() || (value.is_boolean() && !value.get<bool>()) || (value.is_string() && value == "") ||
         (value.is_structured() && value.empty());
}

/// Returns a key's value, or `fallback` if it is absent, null or an empty text.
template <class T>
T value_or(const nlohmann::json& config, const char* key, const T& fallback) {
  const auto it = config.find(key);
  return it == config.end() || it->is_null() || (it->is_string() && *it == "") ? fallback : it->get<T>();
}

/// Reads bias and modules_to_save.
inline void read_common(const nlohmann::json& config, AdapterTargets& targets, const std::string& where) {
  targets.origin = where;
  const auto bias = value_or<std::string>(config, "bias", "none");
  require(bias == "none", "{}: bias '{}' is not implemented (implemented: none)", where, bias);
  if (const nlohmann::json saved = config.value("modules_to_save", nlohmann::json()); !is_empty(saved))
    targets.modules_to_save = saved.get<std::vector<std::string>>();
}

/// Reads target_modules. `more`: further module names, each followed by a comma.
void read_targets(AdapterTargets& targets, const nlohmann::json& modules, const std::string& more, const std::string& where);
/// Returns true if an adapter has tensors for the linears of single experts. (Newer PEFT wraps experts as fused parameters or not
/// at all.)
bool has_expert_modules(const std::filesystem::path& dir);
/// Reads a directory's adapter_config.json. Throws ConfigError if there is none.
nlohmann::json read_adapter_json(const std::filesystem::path& dir);

}  // namespace qft::model
