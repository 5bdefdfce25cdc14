// Mixture of experts (Shazeer et al. 2017): a router, and linears of which each token takes those of its experts.
#pragma once

#include "qft/ops/linear.h"
#include "qft/ops/workspace.h"

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

namespace qft::ops {

/// probabilities = softmax(logits); a token goes to the per_token experts with the highest ones, with these as weights, divided
/// by their sum if `normalise` (transformers' Qwen3MoeTopKRouter). A NaN gives NaN weights, and experts that exist.
///   logits         [T, experts]
///   probabilities  [T, experts], fp64 for fp64 data, else fp32
///   log_sums       [T], the same: log of the sum of exp(logits)
///   experts        int32 [T, per_token], by falling probability
///   weights        [T, per_token], the dtype of logits
void route_forward(const at::Tensor& logits, bool normalise, const at::Tensor& probabilities, const at::Tensor& log_sums,
                   const at::Tensor& experts, const at::Tensor& weights);
/// Gradients of what a router gives, of the dtype of probabilities. Undefined: zero.
struct RouteGrads {
  at::Tensor weights;        ///< [T, per_token]
  at::Tensor probabilities;  ///< [T, experts]
  at::Tensor log_sums;       ///< [T]
};
/// Writes the gradient of logits.
void route_backward(const at::Tensor& probabilities, const at::Tensor& experts, bool normalise, const RouteGrads& grads,
                    const at::Tensor& glogits);

/// Where the rows of experts lie: per_token for each token, those of the first expert first, in the order of the tokens.
struct ExpertRows {
  std::vector<std::int64_t> begins;  ///< [experts + 1]: those of expert e are [begins[e], begins[e + 1])
  at::Tensor tokens;                 ///< int64 [rows]: the token of each row
  at::Tensor places;                 ///< int64 [T * per_token]: the row of each token and each of its experts
  at::Tensor ends;                   ///< int32 [experts]: begins but for the first, on the device
  std::int64_t count() const { return begins.back(); }
};
/// From route_forward's choice; tensors of the workspace, valid until the next call. The host waits for the device.
ExpertRows deal_rows(const at::Tensor& experts, std::int64_t count, Workspace& workspace);
/// Bytes of the workspace that it takes.
std::int64_t dealt_bytes(std::int64_t tokens, std::int64_t per_token);

/// rows[i] = x[token of row i]. x [T, K], rows [rows, K], contiguous.
void gather_rows(const at::Tensor& x, const ExpertRows& dealt, const at::Tensor& rows);
/// out[t] = (or +=) sum of the token's rows, in the order of its experts, rounded once. out [T, K] contiguous.
void sum_rows(const at::Tensor& rows, const ExpertRows& dealt, const at::Tensor& out, GradMode mode);

/// The weights, or gradients, of expert `e` of a stack: weight [experts, N, K], LoRA's a [experts, r, K], b [experts, rows, r];
/// views. Each expert has `sites` dropout sites of its own.
LinearWeights expert_of(const LinearWeights& stack, std::int64_t e, std::uint32_t sites);
LinearGrads expert_of(const LinearGrads& stack, std::int64_t e);

/// linear_forward() of each expert over its rows: x [rows, K], y [rows, N], saved [rows, lora_saved_columns(stack)].
/// `dropout.rows` are those of the rows, not of the tokens.
void experts_forward(const ExpertRows& dealt, const at::Tensor& x, const LinearWeights& stack, std::uint32_t sites,
                     const LoraDropout& dropout, const at::Tensor& y, const at::Tensor& saved, Workspace& workspace);
/// linear_backward() likewise; gx [rows, K].
void experts_backward(const ExpertRows& dealt, const at::Tensor& gy, const at::Tensor& x, const LinearWeights& stack,
                      std::uint32_t sites, const LoraDropout& dropout, const at::Tensor& saved, const at::Tensor& gx,
                      GradMode mode, const LinearGrads& grads, Workspace& workspace);
/// Bytes that either allocates for so many rows and columns on a device that has products of all experts at once.
std::int64_t grouped_bytes(std::int64_t rows, std::int64_t columns, at::ScalarType dtype);
/// The identity of each row, for dropout; undefined tensors without.
RowIdentity rows_of(const RowIdentity& tokens, const ExpertRows& dealt);

}  // namespace qft::ops
