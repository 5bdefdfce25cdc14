// The amount of work in a step. Used to compare the speed of ranks with unequal samples.
#pragma once

#include "qft/loader/loader.h"
#include "qft/model/spec.h"

namespace qft::train {

/// Returns the multiplications of a forward pass over the data rank's micro-batches with this rank's part of the matrices: rows
/// with the layers' matrices, labels with the head, and attention to earlier tokens, which dominates in long sequences. Context
/// ranks divide this work evenly.
double step_work(const model::ModelSpec& spec, const loader::StepBatch& batch);

}  // namespace qft::train
