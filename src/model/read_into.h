// Elements of parameters from files. Private to model.
#pragma once

#include "qft/model/weights.h"

#include <cstdint>

#include "sources.h"

namespace qft::model {

/// Reads those of the shard's elements of the parameter's box that the tensor in the file has, and no others, converting from
/// F64, F32, BF16 or F16 on the way in pieces: nothing of the tensor's size is allocated. Returns the bytes read.
std::int64_t read_into(const Source& source, const ParamSpec& param, const Shard& dst);

}  // namespace qft::model
