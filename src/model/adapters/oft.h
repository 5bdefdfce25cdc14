// The parts of OFT's row in kinds.cpp that are files of their own. Private to model.
#pragma once

#include "kinds.h"

namespace qft::model {

AdapterConfig read_oft(const nlohmann::json& json, const std::filesystem::path& dir, const std::string& where);
nlohmann::json write_oft(const AdapterConfig& config);

}  // namespace qft::model
