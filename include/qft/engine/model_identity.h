// Which model a run computes with: by its files, not by their names.
#pragma once

#include "qft/config/run_config.h"

#include <string>

namespace qft::engine {

struct ModelIdentity {
  std::string model;         ///< hash of config.json, scaled as rope_scaling says, and of the weights: io::sampled_hash()
  std::string adapter;       ///< hash of the adapters on it; "none"
  std::string quantization;  ///< of its weights, as the run file says; "none"
};

/// The model and adapters that `config` names for inference. Reads ten samples of each file, and small ones whole. Not
/// collective. Throws Error.
ModelIdentity model_identity_of(const config::RunConfig& config);

}  // namespace qft::engine
