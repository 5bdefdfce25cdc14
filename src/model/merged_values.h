// Tensors of a merged model as numbers. Private to model.
#pragma once

#include "merged_model.h"
#include <ATen/core/Tensor.h>

namespace qft::model {

/// The whole tensor as the adapter leaves it, fp32, [elements].
at::Tensor merged_values(MergedModel& model, const ModelTensor& tensor);
/// The same without the adapter.
at::Tensor base_values(const MergedModel& model, const ModelTensor& tensor);

}  // namespace qft::model
