// Rows of a flat batch that two sequences have in common, such as the prompt of a preference pair. They are computed once by
// operations that do not mix tokens. Operations that mix tokens expand them for each sequence (attention.h, gated_delta.h,
// short_convolution.h).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include <ATen/core/Tensor.h>

namespace qft::ops {

/// Maps the T tokens of the sequences to R rows.
struct SharedRows {
  /// Tokens [token, token + count) use rows [row, row + count).
  struct Span {
    std::int64_t token = 0, row = 0, count = 0;
    bool repeated = false;  ///< an earlier sequence already uses these rows
  };
  std::vector<Span> spans;  ///< by token; empty if every token has its own row
  std::int64_t tokens = 0, rows = 0;

  /// shared[s]: number of leading tokens that sequence s has in common with sequence s - 1 and takes rows from. Empty: no
  /// sharing. Throws Error if a count exceeds either sequence, or if sequence s - 1 shares rows itself.
  static SharedRows build(std::span<const std::int32_t> cu_seqlens, std::span<const std::int32_t> shared);
  bool any() const { return !spans.empty(); }
  std::int64_t row_of(std::int64_t token) const;
};

/// Workspace names of expanded tensors. Every operation is done with them when it returns.
inline constexpr const char *kSharedIn = "op.shared_in", *kSharedOut = "op.shared_out", *kSharedGradIn = "op.shared_gin",
                            *kSharedGradOut = "op.shared_gout", *kSharedStatistics = "op.shared_statistics",
                            *kSharedGradStatistics = "op.shared_gstatistics";

// All tensors may have any strides. These functions require any():

/// to [T, ...]: copies each token's row of x [R, ...].
void expand_rows(const at::Tensor& x, const SharedRows& shared, const at::Tensor& to);
/// Likewise for a gradient: a row's first token gets it, the second gets 0.
void expand_gradient(const at::Tensor& g, const SharedRows& shared, const at::Tensor& to);
/// to [R, ...]: copies x [T, ...] at the first token of each row.
void first_rows(const at::Tensor& x, const SharedRows& shared, const at::Tensor& to);
/// to [R, ...]: sums x [T, ...] over each row's tokens, the first token first.
void sum_tokens(const at::Tensor& x, const SharedRows& shared, const at::Tensor& to);

}  // namespace qft::ops
