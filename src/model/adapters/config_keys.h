// The keys of adapter_config.json: which are read, which change nothing, which are refused. Private to model.
#pragma once

#include <string>

#include <nlohmann/json.hpp>

namespace qft::model {

/// Goes through all keys. Throws Error naming a key that has a value and changes the computation, or turns on what nobody here
/// knows; warns of other values of unknown keys.
void check_adapter_keys(const nlohmann::json& config, const std::string& peft_type, const std::string& where);

}  // namespace qft::model
