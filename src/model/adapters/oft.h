// The functions of OFT's row in kinds.cpp that have their own files. Private to model.
#pragma once

#include "kinds.h"

namespace qft::model {

AdapterConfig read_oft(const nlohmann::json& json, const std::filesystem::path& dir, const std::string& where);
nlohmann::json write_oft(const AdapterConfig& config);

}  // namespace qft::model
