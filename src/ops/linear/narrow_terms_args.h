// Arguments of the kernel for LoRA's terms: products with a short inner dimension, written into columns of a wide output.
#pragma once

#include <cstdint>

namespace qft::ops {

/// Columns of the output: rows [tokens, ranks] times a factor.
template <class T>
struct NarrowPart {
  const T *rows, *factor;
  T* out;
  std::int64_t columns;
  int first_block;  ///< of this part's blocks along x
};

/// out = (or +=) rows factor for each part, with fp32 sums; elements are fp16 or bf16.
template <class T>
struct NarrowTerms {
  static constexpr int kMostParts = 4;
  NarrowPart<T> parts[kMostParts];
  int count;
  std::int64_t tokens, ranks, row_stride, out_stride;
  bool by_rank;  ///< factors are [ranks, columns]; otherwise [columns, ranks]
  bool add;
};

}  // namespace qft::ops
