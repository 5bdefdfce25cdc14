// The adapter that a run trains or uses. Private to engine.
#pragma once

#include "qft/engine/model_source.h"

#include <cstdint>

namespace qft::engine {

/// Returns the adapter of `source`, else for training the adapter that the run file describes; an empty one for full fine-tuning.
/// Throws ConfigError if the run file asks for other settings than the adapter that training starts from.
model::AdapterConfig adapter_of(const config::RunConfig& config, const ModelSource& source);

/// Returns num_labels of a classifier's run; throws ConfigError without it. Checked here, because a pack may have set the stage.
std::int64_t labels_of(const config::RunConfig& config);

}  // namespace qft::engine
