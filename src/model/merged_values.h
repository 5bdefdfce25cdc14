// Values of a merged model's tensors. Private to model.
#pragma once

#include "merged_model.h"
#include <ATen/core/Tensor.h>

namespace qft::model {

/// Returns the whole tensor [elements] in fp32 with the adapter merged.
at::Tensor merged_values(MergedModel& model, const ModelTensor& tensor);
/// Returns it without the adapter.
at::Tensor base_values(const MergedModel& model, const ModelTensor& tensor);

}  // namespace qft::model
