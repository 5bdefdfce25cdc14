// Tiled matrix products on the CPU. LoRA's narrow products are added while a tile of the result is still in cache in fp32, so
// that they cost little more than their arithmetic.
#pragma once

#include "qft/ops/workspace.h"

#include <cstdint>
#include <vector>

#include "brgemm_cpu.h"
#include <ATen/core/Tensor.h>

namespace qft::ops::blocked {

/// A term that adds a b to columns [column0, column0 + n) of a result: a [m, r], b [r, n], r small.
struct NarrowTerm {
  at::Tensor a, b;
  std::int64_t column0 = 0;
};

/// out = factors * before + bias, before = scale * (a b + terms), all bf16, summed in fp32 and rounded once. (In fp32, ATen's
/// products are as fast, and match transformers.)
struct Product {
  at::Tensor out;   ///< [m, n], contiguous rows; neither a nor b
  at::Tensor a, b;  ///< [m, k], contiguous rows; [k, n], contiguous rows or columns
  at::Tensor bias;  ///< [n] or undefined
  double scale = 1.0;
  std::vector<NarrowTerm> terms;
  at::Tensor factors = {};  ///< fp32 [n], or undefined: 1
  at::Tensor before = {};   ///< [m, n], contiguous rows: the values before factors and bias; undefined without factors
};
/// Returns false and does nothing if the product is unsupported; the caller then uses another path.
bool multiply(const Product& product, Workspace& workspace, TileType tile_type = preferred_tile_type(at::kBFloat16));

/// Bytes for copying a left-hand side [m, k] at a time: the rows of a partial unit, or all rows if they are widened.
std::int64_t operand_copy_bytes(std::int64_t m, std::int64_t k, TileType tile_type = preferred_tile_type(at::kBFloat16));

}  // namespace qft::ops::blocked
