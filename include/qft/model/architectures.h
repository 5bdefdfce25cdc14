// Which models are implemented.
#pragma once

#include <string_view>
#include <vector>

namespace qft::model {

/// The `model_type` of each implemented architecture, as config.json names it.
std::vector<std::string_view> architectures();

}  // namespace qft::model
