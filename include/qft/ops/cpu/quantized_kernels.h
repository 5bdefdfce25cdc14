// CPU kernels that decode quantised weights. T is float or Bf16; products are fp32, rounded once.
#pragma once

#include "qft/ops/cpu/kernels.h"

#include <cstdint>

namespace qft::ops::cpu {

/// Those of 16 bytes of a column.
template <class T>
constexpr std::int64_t kReorderedRows = 16 / static_cast<std::int64_t>(sizeof(T));

template <class T>
struct QuantizedKernels {
  /// `count` codes of 4 bits, two a byte, the first in the upper half, that share a scale; `table` has 16 numbers.
  void (*four_bits)(const std::uint8_t* codes, const float* table, float scale, T* out, std::int64_t count);
  void (*int8)(const std::int8_t* codes, float largest, T* out, std::int64_t count);  ///< code * largest / 127
  void (*fp8)(const std::uint8_t* codes, float scale, T* out, std::int64_t count);
  void (*group)(const std::uint8_t* codes, float zero, float scale, T* out, std::int64_t count);  ///< (code - zero) * scale
  /// Column i of kReorderedRows<T> rows, which follow each other in `from` and `out`, becomes column order[i]. `room`: as much as
  /// they have. `count`: columns.
  void (*reorder)(const T* from, const std::int32_t* order, T* room, T* out, std::int64_t count);
};
template <class T>
QuantizedKernels<T> quantized_kernels();

}  // namespace qft::ops::cpu
