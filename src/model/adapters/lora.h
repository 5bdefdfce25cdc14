// The functions of LoRA's row in kinds.cpp that have their own files. Private to model.
#pragma once

#include "kinds.h"

namespace qft::model {

AdapterConfig read_lora(const nlohmann::json& json, const std::filesystem::path& dir, const std::string& where);
nlohmann::json write_lora(const AdapterConfig& config);

}  // namespace qft::model
