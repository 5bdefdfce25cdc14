// Attention on an accelerator by LibTorch's variable-length kernels, through the dispatcher.
#include <optional>

#include "attention_paths.h"
#include <ATen/SDPBackend.h>
#include <ATen/ops/_efficient_attention_backward.h>
#include <ATen/ops/_efficient_attention_forward.h>
#include <ATen/ops/_flash_attention_backward.h>
#include <ATen/ops/_flash_attention_forward.h>
#include <ATen/ops/_fused_sdp_choice.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>

namespace qft::ops::sdpa {
namespace {

constexpr std::int64_t kCausalFromTopLeft = 1;  ///< custom_mask_type of the memory-efficient kernel
constexpr std::int64_t kLsePadding = 32;        ///< its backward wants rows of a multiple of this

/// The window as flash attention takes it: how many tokens before itself a token sees, and how many after.
struct FlashWindow {
  std::optional<std::int64_t> left, right;

  explicit FlashWindow(const AttentionOptions& options) {
    if (options.window > 0) left = options.window - 1, right = 0;
  }
};
/// As the memory-efficient kernel takes it: how many it sees, with itself.
std::optional<std::int64_t> window_size(const AttentionOptions& options) {
  return options.window > 0 ? std::optional(options.window) : std::nullopt;
}

/// Keys or values repeated for every query head of their group: the memory-efficient kernel knows no groups.
at::Tensor repeated(const at::Tensor& kv, std::int64_t group) {
  if (group == 1) return kv;
  return kv.unsqueeze(2).expand({kv.size(0), kv.size(1), group, kv.size(2)}).flatten(1, 2);
}

/// Gradient of `repeated`.
at::Tensor summed(const at::Tensor& grad, std::int64_t group) {
  return group == 1 ? grad : grad.unflatten(1, {grad.size(1) / group, group}).sum(2);
}

void efficient_forward(const QkvViews& in, const PackedSequences& seq, const AttentionOptions& options, const at::Tensor& out,
                       const at::Tensor& lse) {
  const std::int64_t group = in.q.size(1) / in.k.size(1);
  const auto result = at::_efficient_attention_forward(
      in.q.unsqueeze(0), repeated(in.k, group).unsqueeze(0), repeated(in.v, group).unsqueeze(0), std::nullopt,
      seq.device_cu_seqlens, seq.device_cu_seqlens, seq.max_length, seq.max_length, 0.0, kCausalFromTopLeft, true, options.scale,
      /*seqlen_k=*/std::nullopt, window_size(options));
  out.view(in.q.sizes()).copy_(std::get<0>(result).squeeze(0));
  const at::Tensor& padded = std::get<1>(result);  // [sequences, heads, padded length]
  for (std::int64_t s = 0; s < seq.num_sequences(); ++s) {
    const std::int64_t first = seq.cu_seqlens[s], n = seq.cu_seqlens[s + 1] - first;
    lse.narrow(1, first, n).copy_(padded[s].narrow(1, 0, n));
  }
}

void efficient_backward(const at::Tensor& gout, const QkvViews& in, const at::Tensor& out, const at::Tensor& lse,
                        const PackedSequences& seq, const AttentionOptions& options, const QkvViews& grads) {
  const std::int64_t group = in.q.size(1) / in.k.size(1);
  const std::int64_t padded_length = (seq.max_length + kLsePadding - 1) / kLsePadding * kLsePadding;
  const at::Tensor padded =
      at::full({seq.num_sequences(), in.q.size(1), padded_length}, std::numeric_limits<double>::infinity(), lse.options());
  for (std::int64_t s = 0; s < seq.num_sequences(); ++s) {
    const std::int64_t first = seq.cu_seqlens[s], n = seq.cu_seqlens[s + 1] - first;
    padded[s].narrow(1, 0, n).copy_(lse.narrow(1, first, n));
  }
  const at::Tensor no_seed = at::zeros({}, lse.options().dtype(at::kLong));
  const auto result = at::_efficient_attention_backward(
      gout.view(in.q.sizes()).unsqueeze(0), in.q.unsqueeze(0), repeated(in.k, group).unsqueeze(0),
      repeated(in.v, group).unsqueeze(0), std::nullopt, out.view(in.q.sizes()).unsqueeze(0), seq.device_cu_seqlens,
      seq.device_cu_seqlens, seq.max_length, seq.max_length, padded, 0.0, no_seed, no_seed, kCausalFromTopLeft, false,
      options.scale, /*num_splits_key=*/std::nullopt, window_size(options));
  grads.q.copy_(std::get<0>(result).squeeze(0));
  grads.k.copy_(summed(std::get<1>(result).squeeze(0), group));
  grads.v.copy_(summed(std::get<2>(result).squeeze(0), group));
}

}  // namespace

bool device_attention_is_flash(const QkvViews& in) {
  const auto batch = [](const at::Tensor& t) { return t.unsqueeze(0).transpose(1, 2); };
  const auto choice = static_cast<at::SDPBackend>(
      at::_fused_sdp_choice(batch(in.q), batch(in.k), batch(in.v), std::nullopt, 0.0, true, std::nullopt, true));
  return choice == at::SDPBackend::flash_attention || choice == at::SDPBackend::cudnn_attention;
}

void device_attention_forward(const QkvViews& in, const PackedSequences& seq, const AttentionOptions& options,
                              const at::Tensor& out, const at::Tensor& lse) {
  if (!device_attention_is_flash(in)) return efficient_forward(in, seq, options, out, lse);
  const FlashWindow window(options);
  const auto result = at::_flash_attention_forward(in.q, in.k, in.v, seq.device_cu_seqlens, seq.device_cu_seqlens, seq.max_length,
                                                   seq.max_length, 0.0, true, false, options.scale, window.left, window.right);
  out.view(in.q.sizes()).copy_(std::get<0>(result));
  lse.copy_(std::get<1>(result));
}

void device_attention_backward(const at::Tensor& gout, const QkvViews& in, const at::Tensor& out, const at::Tensor& lse,
                               const PackedSequences& seq, const AttentionOptions& options, const QkvViews& grads) {
  if (!device_attention_is_flash(in)) return efficient_backward(gout, in, out, lse, seq, options, grads);
  const FlashWindow window(options);
  const at::Tensor no_seed = at::zeros({2}, lse.options().dtype(at::kUInt64)), unused = at::zeros({}, lse.options());
  const auto [gq, gk, gv] = at::_flash_attention_backward(
      gout.view(in.q.sizes()), in.q, in.k, in.v, out.view(in.q.sizes()), lse, seq.device_cu_seqlens, seq.device_cu_seqlens,
      seq.max_length, seq.max_length, 0.0, true, no_seed, unused, options.scale, window.left, window.right);
  grads.q.copy_(gq);
  grads.k.copy_(gk);
  grads.v.copy_(gv);
}

}  // namespace qft::ops::sdpa
