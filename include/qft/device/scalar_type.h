// Converts between the element types of files and messages and LibTorch's.
#pragma once

#include "qft/core/dtype.h"

#include <c10/core/ScalarType.h>

namespace qft::device {

/// Returns the DType of a tensor's scalar type; throws Error for a type that files cannot hold.
DType dtype_of(at::ScalarType type);
at::ScalarType scalar_type_of(DType dtype);

}  // namespace qft::device
