// The implemented architectures.
#pragma once

#include <string_view>
#include <vector>

namespace qft::model {

/// Returns the `model_type` of each implemented architecture, as in config.json.
std::vector<std::string_view> architectures();

}  // namespace qft::model
