// Weights to codes with scales beside them, and back: they are decoded before they are used. Formats of 4 bits are those of
// bitsandbytes 0.50 (`functional.quantize_4bit`, blocks of 64; Dettmers et al. 2023, "QLoRA"), to the bit.
#pragma once

#include "qft/ops/quantized_layout.h"

#include <ATen/core/Tensor.h>

namespace qft::ops {

/// Codes of `values` [rows, columns], of any floating type, in host memory, to `bytes` [layout.bytes] (uint8). Throws Error where
/// a value is not finite.
void quantize(const at::Tensor& values, const QuantizedLayout& layout, const at::Tensor& bytes);

/// The numbers that `bytes` stand for: `out` is [numel], of any floating type, contiguous and on the device of `bytes`. Products
/// of codes and scales are fp32, then rounded to out's type.
void dequantize(const at::Tensor& bytes, const QuantizedLayout& layout, const at::Tensor& out);
/// The same in plain ATen calls, which is the oracle of the kernels.
void dequantize_generic(const at::Tensor& bytes, const QuantizedLayout& layout, const at::Tensor& out);

}  // namespace qft::ops
