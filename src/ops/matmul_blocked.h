// Matrix products on the CPU by blocks that stay in the cache. LoRA's narrow products are added while a block
// is still in fp32 in the cache, so that they cost little more than their arithmetic.
#pragma once

#include "qft/ops/workspace.h"

#include <cstdint>
#include <vector>

#include "brgemm.h"
#include <ATen/core/Tensor.h>

namespace qft::ops::blocked {

/// Adds a b to columns [column0, column0 + n) of a result: a [m, r], b [r, n], r small.
struct NarrowTerm {
  at::Tensor a, b;
  std::int64_t column0 = 0;
};

/// out = factors * before + bias, before = scale * (a b + terms), all bf16, summed in fp32 and rounded once. (In fp32 ATen's
/// products are as fast, and those that transformers has.)
struct Product {
  at::Tensor out;   ///< [m, n], rows of successive elements; neither a nor b
  at::Tensor a, b;  ///< [m, k], rows of successive elements; [k, n], rows or columns of successive elements
  at::Tensor bias;  ///< [n] or undefined
  double scale = 1.0;
  std::vector<NarrowTerm> terms;
  at::Tensor factors = {};  ///< fp32 [n], or undefined: 1
  at::Tensor before = {};   ///< [m, n], rows of successive elements: what factors multiply; undefined without them
};
/// False, having done nothing, where it does not serve: the caller has another way.
bool multiply(const Product& product, Workspace& workspace, Blocks blocks = faster_blocks(at::kBFloat16));

/// Bytes of a left-hand side [m, k] that are held as a copy at a time: rows that fill no block, all rows where they are widened.
std::int64_t copied_bytes(std::int64_t m, std::int64_t k, Blocks blocks = faster_blocks(at::kBFloat16));

}  // namespace qft::ops::blocked
