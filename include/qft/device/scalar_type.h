// Element types: those of files and messages, and LibTorch's.
#pragma once

#include "qft/core/dtype.h"

#include <c10/core/ScalarType.h>

namespace qft::device {

/// The DType of a tensor's scalar type; throws Error for one that no file can hold.
DType dtype_of(at::ScalarType type);
at::ScalarType scalar_type_of(DType dtype);

}  // namespace qft::device
