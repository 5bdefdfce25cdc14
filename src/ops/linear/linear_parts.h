// Shared helpers for products with LoRA's parts. Private to ops.
#pragma once

#include "qft/ops/linear.h"

#include <vector>

#include "matmul_blocked_cpu.h"

namespace qft::ops {

DropoutKey key_of(const LoraPart& part, const LoraDropout& dropout);

/// dropout(x) for one part; x itself without dropout.
at::Tensor dropped_input(const at::Tensor& x, const LoraPart& part, const LoraDropout& dropout, Workspace& workspace);

/// saved = scaling * dropout(x) A^T for all parts.
void project_down(const at::Tensor& x, const LinearWeights& w, const LoraDropout& dropout, const at::Tensor& saved,
                  Workspace& workspace);

/// Returns LoRA's terms in addition to x W^T.
std::vector<blocked::NarrowTerm> output_terms(const LinearWeights& w, const at::Tensor& saved);

/// Calls f(row0, rows) for each range of w's rows that belongs to none of its parts; `parts` are in ascending row0 order.
template <class Part, class F>
void for_gaps(const LinearWeights& w, const std::vector<Part>& parts, const F& f) {
  std::int64_t row0 = 0;
  for (const Part& part : parts) {
    if (row0 < part.row0) f(row0, part.row0 - row0);
    row0 = part.row0 + part.rows;
  }
  if (row0 < w.weight.size(0)) f(row0, w.weight.size(0) - row0);
}

/// Calls f(part, columns) with each part's columns of `saved`, or of its gradient. `w` may be a stack of experts.
template <class F>
void for_parts(const LinearWeights& w, const at::Tensor& saved, const F& f) {
  std::int64_t column = 0;
  for (std::size_t i = 0; i < w.lora.size(); ++i) {
    const std::int64_t rank = w.lora[i].a.size(-2);
    f(i, saved.narrow(1, column, rank));
    column += rank;
  }
}

}  // namespace qft::ops
