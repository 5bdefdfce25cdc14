// The amount of work in a step, by which the speed of ranks with unequal samples is compared.
#pragma once

#include "qft/loader/loader.h"
#include "qft/model/spec.h"

namespace qft::train {

/// Multiplications of a forward pass over the micro-batches: of every row with the layers' matrices, of every label with the
/// head, and of attention with the tokens before, which in long sequences is most of it.
double step_work(const model::ModelSpec& spec, const loader::StepBatch& batch);

}  // namespace qft::train
