// The implemented architectures.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace qft::model {

/// Returns the `model_type` of each implemented architecture, as in config.json.
std::vector<std::string_view> architectures();

/// Returns the Python module with transformers' classes of this architecture: "transformers.models.qwen3.modeling_qwen3". Throws
/// Error for a model_type that is not implemented.
std::string modeling_module(const std::string& model_type);

}  // namespace qft::model
