// The amount of work in a step. Used to compare the speed of ranks with unequal samples.
#pragma once

#include "qft/loader/loader.h"
#include "qft/model/spec.h"

namespace qft::train {

/// Returns this rank's multiplications of a forward pass over the micro-batches, with its part of the matrices and an even
/// part of the sequences: rows with the layers' matrices, labels with the head, and attention to earlier tokens, which dominates
/// in long sequences.
double step_work(const model::ModelSpec& spec, const loader::StepBatch& batch);

}  // namespace qft::train
