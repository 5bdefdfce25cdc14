// Attention on an accelerator with LibTorch's kernels for packed sequences, through the dispatcher.
#include "qft/device/backends.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <optional>
#include <tuple>

#include "attention_paths.h"
#include <ATen/SDPBackend.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/List.h>
#include <ATen/ops/_efficient_attention_backward.h>
#include <ATen/ops/_efficient_attention_forward.h>
#include <ATen/ops/_flash_attention_backward.h>
#include <ATen/ops/_flash_attention_forward.h>
#include <ATen/ops/_fused_sdp_choice.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/index.h>
#include <ATen/ops/searchsorted.h>

namespace qft::ops::sdpa {
namespace {

constexpr std::int64_t kCausalFromTopLeft = 1;  ///< custom_mask_type of the memory-efficient kernel

/// Pads heads with zeros to aligned_head_dim(). The zeros change neither scores nor other elements of the result.
at::Tensor aligned(const at::Tensor& rows) {
  const std::int64_t missing = aligned_head_dim(rows.size(2), rows.scalar_type()) - rows.size(2);
  return missing == 0 ? rows : at::constant_pad_nd(rows, {0, missing});
}
QkvViews aligned(const QkvViews& in) {
  return {aligned(in.q), aligned(in.k), aligned(in.v)};
}

/// Writes the heads of `from` without the padding.
void store(const at::Tensor& to, const at::Tensor& from) {
  to.copy_(from.narrow(2, 0, to.size(2)));
}

/// Maximum length passed to flash attention. With a maximum of 1, LibTorch takes a path that rejects empty sequences.
std::int64_t flash_length(const PackedSequences& seq) {
  return std::max(seq.max_length, 2);
}

/// Window for flash attention: the number of visible tokens before and after a token.
struct FlashWindow {
  std::optional<std::int64_t> left, right;

  explicit FlashWindow(const AttentionOptions& options) {
    if (options.window > 0) left = options.window - 1, right = 0;
  }
};
/// Window for the memory-efficient kernel: the number of visible tokens, including the token itself.
std::optional<std::int64_t> window_size(const AttentionOptions& options) {
  return options.window > 0 ? std::optional(options.window) : std::nullopt;
}

/// Repeats keys or values for every query head of a group: the memory-efficient kernel does not support groups.
at::Tensor repeated(const at::Tensor& kv, std::int64_t group) {
  if (group == 1) return kv;
  return kv.unsqueeze(2).expand({kv.size(0), kv.size(1), group, kv.size(2)}).flatten(1, 2);
}

/// Gradient of repeated().
at::Tensor summed(const at::Tensor& grad, std::int64_t group) {
  return group == 1 ? grad : grad.unflatten(1, {grad.size(1) / group, group}).sum(2);
}

/// Writes lse [heads, T] from padded [sequences, heads, length].
void pack_lse(const at::Tensor& padded, const PackedSequences& seq, const at::Tensor& lse) {
  const at::Tensor& bounds = seq.device_cu_seqlens;
  const at::Tensor token = at::arange(lse.size(1), bounds.options());
  const at::Tensor sequence = at::searchsorted(bounds, token, /*out_int32=*/false, /*right=*/true).sub_(1);
  const at::Tensor position = (token - bounds.index_select(0, sequence)).to(at::kLong);
  lse.copy_(at::index(padded, c10::List<std::optional<at::Tensor>>({sequence, std::nullopt, position})).t());
}

/// Inverse of pack_lse(); padding gets infinity.
at::Tensor padded_lse(const at::Tensor& lse, const PackedSequences& seq) {
  const at::Tensor& bounds = seq.device_cu_seqlens;
  const std::int64_t heads = lse.size(0), tokens = lse.size(1), sequences = seq.num_sequences();
  const at::Tensor place = at::arange(padded_lse_length(seq.max_length), bounds.options());
  const at::Tensor token = bounds.narrow(0, 0, sequences).unsqueeze(1) + place;
  const at::Tensor none = token.ge(bounds.narrow(0, 1, sequences).unsqueeze(1));
  const at::Tensor padded = lse.index_select(1, token.clamp_max(tokens - 1).flatten()).view({heads, sequences, place.numel()});
  return padded.transpose(0, 1).masked_fill_(none.unsqueeze(1), std::numeric_limits<double>::infinity());
}

void efficient_forward(const QkvViews& in, const PackedSequences& seq, const AttentionOptions& options, const at::Tensor& out,
                       const at::Tensor& lse) {
  const std::int64_t group = in.q.size(1) / in.k.size(1);
  const auto result = at::_efficient_attention_forward(
      in.q.unsqueeze(0), repeated(in.k, group).unsqueeze(0), repeated(in.v, group).unsqueeze(0), std::nullopt,
      seq.device_cu_seqlens, seq.device_cu_seqlens, seq.max_length, seq.max_length, 0.0, kCausalFromTopLeft, true, options.scale,
      /*seqlen_k=*/std::nullopt, window_size(options));
  store(out, std::get<0>(result).squeeze(0));
  pack_lse(std::get<1>(result), seq, lse);
}

void efficient_backward(const at::Tensor& gout, const QkvViews& in, const at::Tensor& out, const at::Tensor& lse,
                        const PackedSequences& seq, const AttentionOptions& options, const QkvViews& grads) {
  const std::int64_t group = in.q.size(1) / in.k.size(1);
  const at::Tensor no_seed = at::empty({}, at::kLong);
  const auto result = at::_efficient_attention_backward(
      gout.unsqueeze(0), in.q.unsqueeze(0), repeated(in.k, group).unsqueeze(0), repeated(in.v, group).unsqueeze(0), std::nullopt,
      out.unsqueeze(0), seq.device_cu_seqlens, seq.device_cu_seqlens, seq.max_length, seq.max_length, padded_lse(lse, seq), 0.0,
      no_seed, no_seed, kCausalFromTopLeft, false, options.scale, /*num_splits_key=*/std::nullopt, window_size(options));
  store(grads.q, std::get<0>(result).squeeze(0));
  store(grads.k, summed(std::get<1>(result).squeeze(0), group));
  store(grads.v, summed(std::get<2>(result).squeeze(0), group));
}

void flash_forward(const QkvViews& in, const PackedSequences& seq, const AttentionOptions& options, const at::Tensor& out,
                   const at::Tensor& lse) {
  const FlashWindow window(options);
  const std::int64_t length = flash_length(seq);
  const auto result = at::_flash_attention_forward(in.q, in.k, in.v, seq.device_cu_seqlens, seq.device_cu_seqlens, length, length,
                                                   0.0, true, false, options.scale, window.left, window.right);
  store(out, std::get<0>(result));
  lse.copy_(std::get<1>(result));
}

void flash_backward(const at::Tensor& gout, const QkvViews& in, const at::Tensor& out, const at::Tensor& lse,
                    const PackedSequences& seq, const AttentionOptions& options, const QkvViews& grads) {
  const FlashWindow window(options);
  const std::int64_t length = flash_length(seq);
  const at::Tensor no_seed = at::empty({2}, lse.options().dtype(at::kUInt64)), unused = at::empty({}, lse.options());
  const auto [gq, gk, gv] =
      at::_flash_attention_backward(gout, in.q, in.k, in.v, out, lse, seq.device_cu_seqlens, seq.device_cu_seqlens, length,
                                    length, 0.0, true, no_seed, unused, options.scale, window.left, window.right);
  store(grads.q, gq);
  store(grads.k, gk);
  store(grads.v, gv);
}

/// Returns LibTorch's own choice. We pad heads and repeat groups ourselves, so neither matters here.
AttentionPath ask(c10::Device device, at::ScalarType dtype, std::int64_t head_dim) {
  const device::Backend* const backend = device::find_backend(device.type());
  if (backend == nullptr || dtype == at::kDouble || !device::facts_of(device).torch_attention) return AttentionPath::matrices;
  const at::Tensor head =
      at::empty({1, 1, 8, aligned_head_dim(head_dim, dtype)}, at::TensorOptions().dtype(dtype).device(device));
  switch (static_cast<at::SDPBackend>(at::_fused_sdp_choice(head, head, head, std::nullopt, 0.0, /*is_causal=*/true))) {
    case at::SDPBackend::flash_attention:
    case at::SDPBackend::cudnn_attention:  // needs at most as much memory as flash attention
      return AttentionPath::flash;
    case at::SDPBackend::efficient_attention:
      return AttentionPath::efficient;
    default:
      return AttentionPath::matrices;
  }
}

AttentionPath kernel_for(const QkvViews& in) {
  return attention_path(in.q.device(), in.q.scalar_type(), in.q.size(2));
}

}  // namespace

void device_attention_forward(const QkvViews& in, const PackedSequences& seq, const AttentionOptions& options,
                              const at::Tensor& out, const at::Tensor& lse) {
  if (seq.num_tokens() == 0) return;
  const auto forward = kernel_for(in) == AttentionPath::flash ? &flash_forward : &efficient_forward;
  forward(aligned(in), seq, options, out.view(in.q.sizes()), lse);
}

void device_attention_backward(const AttentionBackward& t, const PackedSequences& seq, const AttentionOptions& options) {
  if (seq.num_tokens() == 0) return;
  const auto backward = kernel_for(t.in) == AttentionPath::flash ? &flash_backward : &efficient_backward;
  backward(aligned(t.gout.view(t.in.q.sizes())), aligned(t.in), aligned(t.out.view(t.in.q.sizes())), t.lse, seq, options,
           t.grads);
}

}  // namespace qft::ops::sdpa

namespace qft::ops {

AttentionPath attention_path(c10::Device device, at::ScalarType dtype, std::int64_t head_dim) {
  if (device.is_cpu()) return AttentionPath::cpu;
  static std::mutex mutex;
  static std::map<std::tuple<c10::DeviceType, c10::DeviceIndex, at::ScalarType, std::int64_t>, AttentionPath> known;
  const std::lock_guard lock(mutex);
  const std::tuple key{device.type(), device.index(), dtype, head_dim};
  auto found = known.find(key);
  if (found == known.end()) found = known.emplace(key, sdpa::ask(device, dtype, head_dim)).first;
  return found->second;
}

}  // namespace qft::ops
