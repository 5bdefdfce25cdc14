// Attention with LibTorch's CPU flash kernel, one sequence at a time. Grouped heads form a batch of kv_heads problems with
// `group` heads each; a zero stride expands their keys and values without copying.
#include <limits>
#include <optional>

#include "attention_paths.h"
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu_backward.h>
#include <ATen/ops/zeros.h>

namespace qft::ops::sdpa {
namespace {

/// Returns one sequence's rows as [kv_heads, group, n, head_dim].
at::Tensor by_head(const at::Tensor& rows, std::int64_t first, std::int64_t n, std::int64_t kv_heads, std::int64_t group) {
  const std::int64_t heads_held = rows.size(1) / kv_heads;
  const at::Tensor view = rows.narrow(0, first, n).unflatten(1, {kv_heads, heads_held}).permute({1, 2, 0, 3});
  return view.expand({kv_heads, group, n, rows.size(2)});
}

/// Returns the window for a sequence of n tokens as an additive mask [n, n]; none if the sequence fits in the window.
std::optional<at::Tensor> mask_of(std::int64_t n, const AttentionOptions& options, const at::Tensor& q) {
  if (options.window == 0 || n <= options.window) return std::nullopt;
  return at::zeros({n, n}, q.options())
      .masked_fill_(masked_keys(n, n, options.window, q.device()), -std::numeric_limits<double>::infinity());
}

at::Tensor as_heads(const at::Tensor& rows, const at::Tensor& like) {
  return rows.view(like.sizes());
}

}  // namespace

void attention_forward(const QkvViews& in, const PackedSequences& sequences, const AttentionOptions& options,
                       const at::Tensor& out, const at::Tensor& lse) {
  const std::int64_t kv_heads = in.k.size(1), group = in.q.size(1) / kv_heads;
  const at::Tensor out_heads = as_heads(out, in.q);
  for (std::int64_t s = 0; s < sequences.num_sequences(); ++s) {
    const std::int64_t first = sequences.cu_seqlens[s], n = sequences.cu_seqlens[s + 1] - first;
    if (n == 0) continue;
    auto heads = [&](const at::Tensor& rows) { return by_head(rows, first, n, kv_heads, group); };
    const auto mask = mask_of(n, options, in.q);
    const auto [o, l] = at::_scaled_dot_product_flash_attention_for_cpu(heads(in.q), heads(in.k), heads(in.v), 0.0,
                                                                        !mask.has_value(), mask, options.scale);
    heads(out_heads).copy_(o);
    lse.narrow(1, first, n).copy_(l.reshape({kv_heads * group, n}));
  }
}

void attention_backward(const AttentionBackward& t, const PackedSequences& sequences, const AttentionOptions& options) {
  const std::int64_t kv_heads = t.in.k.size(1), group = t.in.q.size(1) / kv_heads;
  const at::Tensor out_heads = as_heads(t.out, t.in.q), gout_heads = as_heads(t.gout, t.in.q);
  for (std::int64_t s = 0; s < sequences.num_sequences(); ++s) {
    const std::int64_t first = sequences.cu_seqlens[s], n = sequences.cu_seqlens[s + 1] - first;
    if (n == 0) continue;
    auto heads = [&](const at::Tensor& rows) { return by_head(rows, first, n, kv_heads, group); };
    const auto mask = mask_of(n, options, t.in.q);
    const at::Tensor l = t.lse.narrow(1, first, n).reshape({kv_heads, group, n}).contiguous();
    const auto [gq, gk, gv] = at::_scaled_dot_product_flash_attention_for_cpu_backward(
        heads(gout_heads), heads(t.in.q), heads(t.in.k), heads(t.in.v), heads(out_heads), l, 0.0, !mask.has_value(), mask,
        options.scale);
    heads(t.grads.q).copy_(gq);
    t.grads.k.narrow(0, first, n).copy_(gk.sum(1).permute({1, 0, 2}));
    t.grads.v.narrow(0, first, n).copy_(gv.sum(1).permute({1, 0, 2}));
  }
}

}  // namespace qft::ops::sdpa
