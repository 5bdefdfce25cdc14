// The kinds of adapters as data: what they wrap, their parameters, and their configuration in files. Needs no LibTorch; code.h
// has what computes, merge.h what is made of base weights. Private to model.
#pragma once

#include "qft/model/adapter.h"
#include "qft/model/spec.h"

#include <filesystem>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

namespace qft::model {

/// A parameter that has no place in a buffer yet.
struct AdapterParam {
  ParamSpec param;
  bool starts_group = true;  ///< on an aligned offset; else it continues the one before
};

struct AdapterKind {
  const char* name;       ///< "LoRA"
  const char* peft_type;  ///< in adapter_config.json
  bool (*enabled)(const AdapterConfig& config);
  /// Says in the groups of a model's layers which linears are wrapped. Throws ConfigError for what is not implemented.
  void (*wrap)(const AdapterConfig& config, const ModelConfig& model, std::vector<Layer>& layers);
  /// The parameters of a group of a layer, in the order of the flat buffers.
  std::vector<AdapterParam> (*params)(const ModelSpec& spec, int layer, const std::string& prefix, const ParamGroup& group);
  /// Throws ConfigError where the configuration names what is none of these linears, which targets are known to be.
  void (*require_all_met)(const ModelSpec& spec, const std::vector<std::string>& linears);
  /// Of adapter_config.json in `dir`, which errors name as `where`.
  AdapterConfig (*read)(const nlohmann::json& json, const std::filesystem::path& dir, const std::string& where);
  /// Its keys there, beside those that all kinds have.
  nlohmann::json (*write)(const AdapterConfig& config);
};

/// All of them.
const std::vector<AdapterKind>& adapter_kinds();
/// The one that is enabled; nullptr: there is no adapter.
const AdapterKind* kind_of(const AdapterConfig& config);

/// Of an adapter that files describe: throws ConfigError where it wraps nothing of the model, and warns of single targets that
/// wrap nothing, which PEFT passes over.
void require_wrapped(const ModelSpec& spec);

extern const AdapterKind kLora, kOft;

}  // namespace qft::model
