// Mixture of experts (Shazeer et al. 2017): a router, and stacked linears. Each token goes through its own experts' linears.
#pragma once

#include "qft/ops/linear.h"
#include "qft/ops/workspace.h"

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

namespace qft::ops {

/// probabilities = softmax(logits). Sends each token to the per_token most probable experts. Their probabilities become the
/// weights, divided by their sum if `normalise` (transformers' Qwen3MoeTopKRouter). NaN logits give NaN weights, but valid expert
/// indices.
///   logits         [T, experts]
///   probabilities  [T, experts], fp64 for fp64 data, else fp32
///   log_sums       [T], same dtype: log of the sum of exp(logits)
///   experts        int32 [T, per_token], by descending probability
///   weights        [T, per_token], dtype of logits
void route_forward(const at::Tensor& logits, bool normalise, const at::Tensor& probabilities, const at::Tensor& log_sums,
                   const at::Tensor& experts, const at::Tensor& weights);
/// Gradients of the router's outputs, in the dtype of probabilities. Undefined: zero.
struct RouteGrads {
  at::Tensor weights;        ///< [T, per_token]
  at::Tensor probabilities;  ///< [T, experts]
  at::Tensor log_sums;       ///< [T]
};
/// Writes the gradient of logits.
void route_backward(const at::Tensor& probabilities, const at::Tensor& experts, bool normalise, const RouteGrads& grads,
                    const at::Tensor& glogits);

/// Rows grouped by expert, the first expert's first: per_token rows for each token, within an expert in token order.
struct ExpertRows {
  std::vector<std::int64_t> begins;  ///< [experts + 1]: expert e has rows [begins[e], begins[e + 1])
  at::Tensor tokens;                 ///< int64 [rows]: each row's token
  at::Tensor places;                 ///< int64 [T * per_token]: the row of each (token, expert) pair
  at::Tensor ends;                   ///< int32 [experts]: begins without its first element, on the device
  std::int64_t count() const { return begins.back(); }
};
/// Groups the rows by route_forward's choice. The tensors belong to the workspace and stay valid until the next call. The host
/// waits for the device.
ExpertRows group_by_expert(const at::Tensor& experts, std::int64_t count, Workspace& workspace);
/// Workspace bytes that group_by_expert() needs.
std::int64_t expert_rows_bytes(std::int64_t tokens, std::int64_t per_token);

/// rows[i] = x[token of row i]. x [T, K], rows [rows, K], contiguous.
void gather_rows(const at::Tensor& x, const ExpertRows& grouped_rows, const at::Tensor& rows);
/// out[t] = (or +=) sum of the token's rows, in the order of its experts, rounded once. out [T, K] contiguous.
void sum_rows(const at::Tensor& rows, const ExpertRows& grouped_rows, const at::Tensor& out, GradMode mode);

/// Returns views of expert `e`'s weights, or gradients, in a stack: weight [experts, N, K], LoRA's a [experts, r, K], b [experts,
/// rows, r]. Each expert has its own `sites` dropout sites.
LinearWeights expert_of(const LinearWeights& stack, std::int64_t e, std::uint32_t sites);
LinearGrads expert_of(const LinearGrads& stack, std::int64_t e);

/// Runs linear_forward() for each expert over its rows: x [rows, K], y [rows, N], saved [rows, lora_saved_columns(stack)].
/// `dropout.rows` identifies the grouped rows, not the tokens.
void experts_forward(const ExpertRows& grouped_rows, const at::Tensor& x, const LinearWeights& stack, std::uint32_t sites,
                     const LoraDropout& dropout, const at::Tensor& y, const at::Tensor& saved, Workspace& workspace);
/// Runs linear_backward() for each expert over its rows of gy, x, saved and gx.
void experts_backward(const ExpertRows& grouped_rows, const LinearBackward& tensors, const LinearWeights& stack,
                      std::uint32_t sites, const LoraDropout& dropout, const LinearGrads& grads, Workspace& workspace);
/// Bytes that forward or backward allocates for this many rows and columns on a device with grouped products (all experts in one
/// call).
std::int64_t grouped_product_bytes(std::int64_t rows, std::int64_t columns, at::ScalarType dtype);
/// Returns each grouped row's identity for dropout; undefined tensors if there is no dropout.
RowIdentity expert_row_identity(const RowIdentity& tokens, const ExpertRows& grouped_rows);

}  // namespace qft::ops
