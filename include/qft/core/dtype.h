// Element types of buffers, files and collectives; independent of LibTorch so that io and comm stay light.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace qft {

enum class DType : std::uint8_t { f64, f32, f16, bf16, i64, i32, i16, i8, u8, boolean };

/// Returns the size of one element in bytes.
std::size_t size_of(DType dtype);

/// Returns safetensors' name: "F64", "F32", "F16", "BF16", "I64", "I32", "I16", "I8", "U8" or "BOOL".
std::string_view safetensors_name(DType dtype);

/// Inverse of safetensors_name(); throws Error with the unknown word.
DType dtype_from_safetensors(std::string_view name);

}  // namespace qft
