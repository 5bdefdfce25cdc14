// The keys of adapter_config.json: read, harmless or rejected. Private to model.
#pragma once

#include <string>

#include <nlohmann/json.hpp>

namespace qft::model {

/// Checks all keys. Throws Error, naming the key, if a key with a value changes the computation or an unknown key is switched on;
/// warns of other values of unknown keys.
void check_adapter_keys(const nlohmann::json& config, const std::string& peft_type, const std::string& where);

}  // namespace qft::model
