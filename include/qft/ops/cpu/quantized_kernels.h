// CPU kernels that decode quantised weights. T is float or Bf16; products are fp32, rounded once.
#pragma once

#include "qft/ops/cpu/kernels.h"

#include <cstdint>

namespace qft::ops::cpu {

/// Rows that reorder() handles at once: 16 bytes per column.
template <class T>
constexpr std::int64_t kReorderedRows = 16 / static_cast<std::int64_t>(sizeof(T));

template <class T>
struct QuantizedKernels {
  /// Decodes `count` 4-bit codes with a common scale, packed two per byte, the first in the upper half. `table` has 16 numbers.
  void (*four_bits)(const std::uint8_t* codes, const float* table, float scale, T* out, std::int64_t count);
  void (*int8)(const std::int8_t* codes, float largest, T* out, std::int64_t count);  ///< code * largest / 127
  void (*fp8)(const std::uint8_t* codes, float scale, T* out, std::int64_t count);
  void (*group)(const std::uint8_t* codes, float zero, float scale, T* out, std::int64_t count);  ///< (code - zero) * scale
  /// Moves column i to column order[i] in kReorderedRows<T> rows, which are adjacent in `from` and `out`. `room`: scratch of the
  /// same size. `count`: columns.
  void (*reorder)(const T* from, const std::int32_t* order, T* room, T* out, std::int64_t count);
};
template <class T>
QuantizedKernels<T> quantized_kernels();

}  // namespace qft::ops::cpu
