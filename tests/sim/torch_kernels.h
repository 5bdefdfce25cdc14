// Operations of LibTorch that CUDA has and the CPU has not: attention over packed sequences, products of halves into fp32. They
// refuse what CUDA's kernels refuse, and allocate what those allocate.
#pragma once

#include <torch/library.h>

namespace qft::sim {

void register_flash_attention(torch::Library& aten);
/// With the choice between the kinds of attention.
void register_efficient_attention(torch::Library& aten);
void register_products(torch::Library& aten);

}  // namespace qft::sim
