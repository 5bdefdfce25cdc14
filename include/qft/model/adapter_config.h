// adapter_config.json: what PEFT says of an adapter.
#pragma once

#include "qft/io/model_files.h"
#include "qft/model/spec.h"

#include <filesystem>
#include <string>

namespace qft::model {

inline constexpr const char* kAdapterConfigFile = "adapter_config.json";
inline constexpr const char* kAdapterWeightsFile = io::kAdapterWeights[0].file;  // the one that qft writes

/// Whether it began by PiSSA, goes with other base weights than the model's, and kPissaInitFile beside it says with which.
bool is_unconverted(const std::filesystem::path& dir);
/// Of is_unconverted() adapters that of the plain one (LoraConfig::plain()). Throws Error by name for what is not implemented
/// (biases, other kinds of adapters), and where `dir` is no adapter.
AdapterConfig read_adapter_config(const std::filesystem::path& dir);
/// The base model that it names ("base_model_name_or_path"); empty where it names none.
std::string read_base_model_name(const std::filesystem::path& dir);
/// Warns where that is another model than `given`, which lies in `folder`: another spelling, a copy or fewer bits are none.
void warn_of_other_base(const std::filesystem::path& adapter, const std::string& given, const std::filesystem::path& folder);
/// adapter_config.json as PEFT writes it.
std::string adapter_config_json(const AdapterConfig& adapter, const std::string& base_model_name_or_path);

}  // namespace qft::model
