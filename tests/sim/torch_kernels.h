// LibTorch operations that CUDA has and the CPU lacks: attention over packed sequences, and half-precision products into fp32.
// They refuse what CUDA's kernels refuse, and allocate the same memory.
#pragma once

#include <torch/library.h>

namespace qft::sim {

void register_flash_attention(torch::Library& aten);
/// Includes the choice between the kinds of attention.
void register_efficient_attention(torch::Library& aten);
void register_products(torch::Library& aten);

}  // namespace qft::sim
