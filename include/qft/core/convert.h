// Values of host buffers in other element types, for tools that compare and merge files.
#pragma once

#include "qft/core/dtype.h"

#include <cstddef>
#include <optional>
#include <string_view>

namespace qft {

/// True for f64, f32, f16 and bf16.
bool is_floating(DType dtype);

/// "float64", "float32", "float16" or "bfloat16", as PyTorch and run files name them; throws Error for other types.
std::string_view torch_name(DType dtype);
/// "fp64", "fp32", "fp16" or "bf16", as logs and messages name them; throws Error for other types.
std::string_view short_name(DType dtype);
/// Inverse of torch_name(); nothing for another word ("auto").
std::optional<DType> dtype_from_torch(std::string_view name);

/// `count` elements of `src` as doubles: exact, but for integers beyond 2^53. The buffers need no alignment.
void to_double(DType dtype, const void* src, std::size_t count, double* dst);

/// The same as floats (f64 is rounded), and back, rounded once to nearest, ties to even; a NaN stays a NaN.
/// Throw Error where `dtype` is not floating.
void to_float(DType dtype, const void* src, std::size_t count, float* dst);
void from_float(DType dtype, const float* src, std::size_t count, void* dst);

}  // namespace qft
