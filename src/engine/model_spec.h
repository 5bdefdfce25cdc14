// The units and tensors of a run's model. Private to engine.
#pragma once

#include "qft/engine/model_source.h"
#include "qft/model/spec.h"

namespace qft::engine {

/// Returns the spec of the run's model: with a sequence head in stages rm and seq_cls, and with the adapter of `source` or, without
/// one, of the run file. Opens weight files only for quantised models. Throws ConfigError if run file and model do not fit.
model::ModelSpec spec_of(const config::RunConfig& config, const ModelSource& source);

}  // namespace qft::engine
