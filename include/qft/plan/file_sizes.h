// Predicts the sizes of the files that a run writes.
#pragma once

#include "qft/plan/run_plan.h"

#include <cstdint>

namespace qft::plan {

/// Returns the bytes of a model's or an adapter's tensors in files.
std::int64_t model_file_bytes(const model::ModelSpec& spec, const optim::Precision& precision);

/// Returns the bytes of one checkpoint on disk, summed over all ranks: masters and optimizer state (unless Saving::model_only) and the
/// model or the adapter. Does not count files that do not grow with the model (tokenizer, logs, manifest).
std::int64_t checkpoint_bytes(const RunPlan& run);

}  // namespace qft::plan
