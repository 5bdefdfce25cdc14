// Identifies the model that a run computes with, by file contents and not by names.
#pragma once

#include "qft/engine/model_source.h"

#include <string>

namespace qft::engine {

/// Equal identities give equal outputs.
struct ModelIdentity {
  std::string model;         ///< hash of config.json (after rope_scaling) and of the weights: io::sampled_hash()
  std::string adapter;       ///< hash of the adapters; "none" without adapters
  std::string quantization;  ///< quantisation that the run file asks for; "none" without
};

/// Returns the identity of `source`, read for inference of the run `config`. Reads ten samples of each large file and
/// small files whole. Not collective. Throws Error.
ModelIdentity model_identity_of(const config::RunConfig& config, const ModelSource& source);

}  // namespace qft::engine
