// adapter_config.json: PEFT's description of an adapter.
#pragma once

#include "qft/io/model_files.h"
#include "qft/model/spec.h"

#include <filesystem>
#include <string>

namespace qft::model {

inline constexpr const char* kAdapterConfigFile = "adapter_config.json";
inline constexpr const char* kAdapterWeightsFile = io::kAdapterWeights[0].file;  // the file that qft writes

/// Returns true if the adapter was initialised by PiSSA, needs base weights other than the model's, and kPissaInitFile in `dir`
/// holds the factors that define them.
bool is_unconverted(const std::filesystem::path& dir);
/// Reads the adapter's configuration. For an is_unconverted() adapter, returns the equivalent plain adapter
/// (LoraConfig::plain()). Throws Error, naming the feature, for anything not implemented (biases, other adapter kinds), and if
/// `dir` is not an adapter.
AdapterConfig read_adapter_config(const std::filesystem::path& dir);
/// Returns the base model named in adapter_config.json ("base_model_name_or_path"); empty if it names none.
std::string read_base_model_name(const std::filesystem::path& dir);
/// Warns if the adapter names another base model than `given`, which lies in `folder`. Another spelling, a copy and a quantised
/// version count as the same model.
void warn_about_other_base(const std::filesystem::path& adapter, const std::string& given, const std::filesystem::path& folder);
/// Returns the text of adapter_config.json as PEFT writes it.
std::string adapter_config_json(const AdapterConfig& adapter, const std::string& base_model_name_or_path);

}  // namespace qft::model
