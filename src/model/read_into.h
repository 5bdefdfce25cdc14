// Reads elements of parameters from files. Private to model.
#pragma once

#include "qft/model/weights.h"

#include <cstdint>
#include <functional>

#include "tensor_check.h"

namespace qft::model {

/// Calls `visit` with the runs of elements that the shard shares with a file's tensor: `a` counts from the shard's begin, `b`
/// from the tensor's.
void for_each_source_run(const Source& source, const ParamSpec& param, const Shard& dst,
                         const std::function<void(const CommonRun&)>& visit);

/// Reads the shard's elements of the parameter's boxes that lie in the file's tensor, and no others. Converts from F64, F32, BF16
/// or F16 chunk by chunk: allocates nothing as large as the tensor. Returns the bytes read.
std::int64_t read_into(const Source& source, const ParamSpec& param, const Shard& dst);

}  // namespace qft::model
