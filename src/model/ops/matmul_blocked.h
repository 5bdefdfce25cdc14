// Matrix products on the CPU by blocks that stay in the cache. LoRA's narrow products are added while a block
// is still in fp32 in the cache, so that they cost little more than their arithmetic. Both return false,
// having done nothing, where they do not serve: the caller has another way.
#pragma once

#include "qft/model/ops/workspace.h"

#include <cstdint>
#include <span>
#include <vector>

#include <ATen/core/Tensor.h>

namespace qft::model::ops::blocked {

/// Whether tensors of t's type and device are multiplied here.
bool serves(const at::Tensor& t);

/// Adds a b to columns [column0, column0 + n) of a result: a [m, r], b [r, n], r small.
struct NarrowTerm {
  at::Tensor a, b;
  std::int64_t column0 = 0;
};

/// out = scale * (a b + terms) + bias, all bf16, summed in fp32 and rounded once. (In fp32 ATen's products
/// are as fast, and those that transformers has.)
struct Product {
  at::Tensor out;   ///< [m, n], rows of successive elements; neither a nor b
  at::Tensor a, b;  ///< [m, k], rows of successive elements; [k, n], rows or columns of successive elements
  at::Tensor bias;  ///< [n] or undefined
  double scale = 1.0;
  std::vector<NarrowTerm> terms;
};
bool multiply(const Product& product, Workspace& workspace);

/// out += a^T b, a sum over tokens: out [m, n] fp32, of any strides; a [t, m] with few columns, b [t, n],
/// bf16, rows of successive elements.
struct TokenSum {
  at::Tensor out, a, b;
};
bool add_token_sums(std::span<const TokenSum> sums, Workspace& workspace);

}  // namespace qft::model::ops::blocked
