// What a run writes.
#pragma once

#include "qft/model/spec.h"
#include "qft/optim/precision.h"
#include "qft/optim/rule.h"

#include <cstdint>

namespace qft::plan {

/// Bytes of a model's or an adapter's tensors in files.
std::int64_t model_file_bytes(const model::ModelSpec& spec, const optim::Precision& precision);

/// Bytes of one checkpoint on disk, all ranks' parts together: masters and optimizer state, unless `model_only`, and the model or
/// the adapter. Files that do not grow with the model (tokenizer, logs, the manifest) are not counted.
std::int64_t checkpoint_bytes(const model::ModelSpec& spec, const optim::Precision& precision, const optim::RuleSpec& rule,
                              const optim::Hyper& hyper, bool model_only);

}  // namespace qft::plan
