// Rows of a flat batch that two sequences have in common, as the answers of a pair have their prompt: computed once where tokens
// do not mix. Operations that mix tokens lay them out for each sequence (attention.h, gated_delta.h, short_convolution.h).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include <ATen/core/Tensor.h>

namespace qft::ops {

/// Which row each token of the sequences has: T tokens, R rows.
struct SharedRows {
  /// Tokens [token, token + count) have the rows [row, row + count).
  struct Span {
    std::int64_t token = 0, row = 0, count = 0;
    bool again = false;  ///< an earlier sequence has them too
  };
  std::vector<Span> spans;  ///< by token; none where each token has a row of its own
  std::int64_t tokens = 0, rows = 0;

  /// shared[s]: so many first tokens of sequence s are those of sequence s - 1 and have its rows; empty: no sequence's. Throws
  /// Error where it is more than either has, or sequence s - 1 shares some itself.
  static SharedRows build(std::span<const std::int32_t> cu_seqlens, std::span<const std::int32_t> shared);
  bool any() const { return !spans.empty(); }
  std::int64_t row_of(std::int64_t token) const;
};

/// Names in the workspace of what operations lay out so: each of them is done with it when it returns.
inline constexpr const char *kSharedIn = "op.shared_in", *kSharedOut = "op.shared_out", *kSharedGradIn = "op.shared_gin",
                            *kSharedGradOut = "op.shared_gout", *kSharedStatistics = "op.shared_statistics",
                            *kSharedGradStatistics = "op.shared_gstatistics";

// All tensors may be strided as they like. Of rows that are shared, with any():

/// to [T, ...]: each token's row of x [R, ...].
void expand_rows(const at::Tensor& x, const SharedRows& shared, const at::Tensor& to);
/// The same of a gradient: the first of a row's tokens has it, the other one 0.
void expand_gradient(const at::Tensor& g, const SharedRows& shared, const at::Tensor& to);
/// to [R, ...]: of x [T, ...] that of the first token of each row.
void first_rows(const at::Tensor& x, const SharedRows& shared, const at::Tensor& to);
/// to [R, ...]: the sum over each row's tokens of x [T, ...], the first one's first.
void sum_tokens(const at::Tensor& x, const SharedRows& shared, const at::Tensor& to);

}  // namespace qft::ops
