// Quantises weights to codes with scales, and decodes them before use. The 4-bit formats are bit-identical to bitsandbytes 0.50
// (`functional.quantize_4bit`, blocks of 64; Dettmers et al. 2023, "QLoRA").
#pragma once

#include "qft/ops/quantized_layout.h"

#include <ATen/core/Tensor.h>

namespace qft::ops {

/// Quantises `values` [rows, columns] (any floating type, host memory) into `bytes` [layout.bytes] (uint8). Throws Error if a
/// value is not finite.
void quantize(const at::Tensor& values, const QuantizedLayout& layout, const at::Tensor& bytes);

/// Decodes `bytes` into `out` [numel]: any floating type, contiguous, on the device of `bytes`. Computes code times scale in
/// fp32, then rounds to out's dtype.
void dequantize(const at::Tensor& bytes, const QuantizedLayout& layout, const at::Tensor& out);
/// Reference implementation in plain ATen calls; tests compare the kernels with it.
void dequantize_generic(const at::Tensor& bytes, const QuantizedLayout& layout, const at::Tensor& out);

}  // namespace qft::ops
