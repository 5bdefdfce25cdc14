// Conversion of host buffers between element types, for tools that compare and merge files.
#pragma once

#include "qft/core/dtype.h"

#include <cstddef>
#include <optional>
#include <string_view>

namespace qft {

/// True for f64, f32, f16 and bf16.
bool is_floating(DType dtype);

/// Returns "float64", "float32", "float16" or "bfloat16", as PyTorch and run files write them; throws Error for other types.
std::string_view torch_name(DType dtype);
/// Returns "fp64", "fp32", "fp16" or "bf16", as logs and messages write them; throws Error for other types.
std::string_view short_name(DType dtype);
/// Inverse of torch_name(); nullopt for any other word ("auto").
std::optional<DType> dtype_from_torch(std::string_view name);

/// Converts `count` elements of `src` to doubles. Exact except for integers beyond 2^53. The buffers need no alignment.
void to_double(DType dtype, const void* src, std::size_t count, double* dst);

/// to_float() converts to floats (f64 is rounded), from_float() converts back with one rounding: to nearest, ties to even. A NaN
/// stays a NaN. Both throw Error if `dtype` is not a floating-point type.
void to_float(DType dtype, const void* src, std::size_t count, float* dst);
void from_float(DType dtype, const float* src, std::size_t count, void* dst);

}  // namespace qft
