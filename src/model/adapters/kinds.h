// The adapter kinds as data: wrapped linears, parameters, and configuration in files. Needs no LibTorch. code.h has the
// computation, merge.h the merging into base weights. Private to model.
#pragma once

#include "qft/model/adapter.h"
#include "qft/model/spec.h"

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

namespace qft::model {

/// A parameter without a place in a buffer yet.
struct AdapterParam {
  ParamSpec param;
  bool starts_group = true;  ///< starts at an aligned offset; false: directly follows the previous parameter
};

struct AdapterKind {
  const char* name;       ///< "LoRA"
  const char* peft_type;  ///< value in adapter_config.json
  bool (*enabled)(const AdapterConfig& config);
  /// Marks the wrapped linears in the groups of a model's layers. Throws ConfigError for anything not implemented.
  void (*wrap)(const AdapterConfig& config, const ModelConfig& model, std::vector<Layer>& layers);
  /// Returns the number of consecutive inputs of a linear that must stay together; `module` is its full name.
  std::int64_t (*input_block)(const AdapterConfig& config, const std::string& module, std::int64_t inputs);
  /// Returns the parameters for a projection group of a layer, in the order of the flat buffers.
  std::vector<AdapterParam> (*params)(const ModelSpec& spec, int layer, const std::string& prefix, const ParamGroup& group);
  /// Throws ConfigError if the configuration names something that matches none of these linears. Targets are already known to
  /// match.
  void (*require_all_met)(const ModelSpec& spec, const std::vector<std::string>& linears);
  /// Reads the adapter_config.json of `dir`; errors name it as `where`.
  AdapterConfig (*read)(const nlohmann::json& json, const std::filesystem::path& dir, const std::string& where);
  /// Returns the kind's own keys for adapter_config.json.
  nlohmann::json (*write)(const AdapterConfig& config);
};

/// All adapter kinds.
const std::vector<AdapterKind>& adapter_kinds();
/// Returns the enabled kind; nullptr if there is no adapter.
const AdapterKind* kind_of(const AdapterConfig& config);

/// For an adapter loaded from files: throws ConfigError if it wraps nothing in the model, and warns of single targets that wrap
/// nothing, which PEFT ignores.
void require_wrapped(const ModelSpec& spec);

extern const AdapterKind kLora, kOft;

/// The functions of the rows that have their own files (lora_files.cpp, oft_files.cpp).
AdapterConfig read_oft(const nlohmann::json& json, const std::filesystem::path& dir, const std::string& where);
nlohmann::json write_oft(const AdapterConfig& config);

AdapterConfig read_lora(const nlohmann::json& json, const std::filesystem::path& dir, const std::string& where);
nlohmann::json write_lora(const AdapterConfig& config);

}  // namespace qft::model
