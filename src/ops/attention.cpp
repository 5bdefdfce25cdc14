#include "qft/ops/attention.h"

#include "qft/core/error.h"
#include "qft/device/upload.h"

#include <algorithm>

#include "attention_blocked.h"
#include "attention_paths.h"
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>

namespace qft::ops {

PackedSequences PackedSequences::build(std::span<const std::int32_t> cu_seqlens, c10::Device device) {
  require(!cu_seqlens.empty() && cu_seqlens.front() == 0 && std::ranges::is_sorted(cu_seqlens),
          "sequence boundaries must start with 0 and not decrease ({} given)", cu_seqlens.size());
  PackedSequences packed;
  packed.cu_seqlens.assign(cu_seqlens.begin(), cu_seqlens.end());
  for (std::size_t s = 1; s < cu_seqlens.size(); ++s)
    packed.max_length = std::max(packed.max_length, cu_seqlens[s] - cu_seqlens[s - 1]);
  if (!device.is_cpu()) packed.device_cu_seqlens = device::upload(packed.cu_seqlens, device);
  return packed;
}

at::Tensor heads_view(const at::Tensor& rows, std::int64_t first_head, std::int64_t heads, std::int64_t head_dim) {
  return rows.narrow(1, first_head * head_dim, heads * head_dim).unflatten(1, {heads, head_dim});
}

QkvViews split_qkv(const at::Tensor& qkv, std::int64_t heads, std::int64_t kv_heads, std::int64_t head_dim) {
  QFT_ASSERT(qkv.size(1) == (heads + 2 * kv_heads) * head_dim, "rows of {} do not hold {} + 2 x {} heads of {}", qkv.size(1),
             heads, kv_heads, head_dim);
  return {heads_view(qkv, 0, heads, head_dim), heads_view(qkv, heads, kv_heads, head_dim),
          heads_view(qkv, heads + kv_heads, kv_heads, head_dim)};
}

AttentionKernel default_attention_kernel(const at::Tensor& q) {
  if (q.scalar_type() == at::kDouble) return AttentionKernel::reference;
  if (q.is_cpu()) return blocked::available(q.scalar_type()) ? AttentionKernel::blocked : AttentionKernel::sdpa;
  const bool has = attention_path(q.device(), q.scalar_type(), q.size(2)) != AttentionPath::matrices;
  return has ? AttentionKernel::sdpa : AttentionKernel::reference;
}

namespace {

void check(const QkvViews& in, const PackedSequences& sequences, const at::Tensor& out, const at::Tensor& lse) {
  for (const at::Tensor* t : {&in.q, &in.k, &in.v})
    QFT_ASSERT(t->dim() == 3 && t->stride(2) == 1 && t->stride(1) == t->size(2) && t->size(0) == in.q.size(0),
               "attention takes [T, heads, head_dim] with heads side by side");
  QFT_ASSERT(in.k.size(1) == in.v.size(1) && in.q.size(1) % in.k.size(1) == 0, "{} query heads on {} key heads", in.q.size(1),
             in.k.size(1));
  QFT_ASSERT(sequences.num_tokens() == in.q.size(0), "sequences of {} tokens over {} rows", sequences.num_tokens(), in.q.size(0));
  QFT_ASSERT(out.is_contiguous() && out.numel() == in.q.numel(), "out must be contiguous [T, heads * head_dim]");
  QFT_ASSERT(lse.is_contiguous() && lse.size(0) == in.q.size(1) && lse.size(1) == in.q.size(0),
             "lse must be contiguous [heads, T]");
}

/// The kernel to use; throws where the one asked for cannot do this.
AttentionKernel chosen(AttentionKernel kernel, const at::Tensor& q) {
  if (kernel == AttentionKernel::automatic) return default_attention_kernel(q);
  require(kernel != AttentionKernel::blocked || (q.is_cpu() && blocked::available(q.scalar_type())),
          "the blocked attention kernel does not do {} on {} here: use 'automatic'", c10::toString(q.scalar_type()),
          q.device().str());
  require(kernel != AttentionKernel::sdpa || q.is_cpu() || default_attention_kernel(q) == AttentionKernel::sdpa,
          "LibTorch has no attention kernel for {} heads of {} on {}: use 'automatic'", c10::toString(q.scalar_type()), q.size(2),
          q.device().str());
  return kernel;
}

/// Without a window that no sequence exceeds.
AttentionOptions effective(AttentionOptions options, const PackedSequences& sequences) {
  if (options.window >= sequences.max_length) options.window = 0;
  return options;
}

}  // namespace

at::Tensor hidden_keys(std::int64_t queries, std::int64_t keys, std::int64_t window, c10::Device device) {
  const auto positions = at::TensorOptions().dtype(at::kInt).device(device);
  const at::Tensor key = at::arange(keys, positions).unsqueeze(0),
                   query = at::arange(keys - queries, keys, positions).unsqueeze(1);
  const at::Tensor later = key.gt(query);
  return window > 0 && window < keys ? later.logical_or_(key.le(query - window)) : later;
}

bool attention_can_be_captured(c10::Device device, at::ScalarType dtype, std::int64_t head_dim) {
  const AttentionPath path = attention_path(device, dtype, head_dim);
  return path == AttentionPath::cpu || path == AttentionPath::flash;
}

void attention_forward(const QkvViews& in, const PackedSequences& sequences, const AttentionOptions& given, const at::Tensor& out,
                       const at::Tensor& lse, Workspace& workspace, AttentionKernel kernel) {
  check(in, sequences, out, lse);
  const AttentionOptions options = effective(given, sequences);
  switch (chosen(kernel, in.q)) {
    case AttentionKernel::blocked:
      return blocked::attention_forward(in, sequences, options, out, lse, workspace, blocked::faster_blocks(in.q.scalar_type()));
    case AttentionKernel::sdpa:
      if (in.q.is_cpu()) return sdpa::attention_forward(in, sequences, options, out, lse);
      return sdpa::device_attention_forward(in, sequences, options, out, lse);
    default:
      return reference::attention_forward(in, sequences, options, out, lse);
  }
}

void attention_backward(const at::Tensor& gout, const QkvViews& in, const at::Tensor& out, const at::Tensor& lse,
                        const PackedSequences& sequences, const AttentionOptions& given, const QkvViews& grads,
                        Workspace& workspace, AttentionKernel kernel) {
  check(in, sequences, out, lse);
  const AttentionOptions options = effective(given, sequences);
  switch (chosen(kernel, in.q)) {
    case AttentionKernel::blocked:
      return blocked::attention_backward(gout, in, out, lse, sequences, options, grads, workspace,
                                         blocked::faster_blocks(in.q.scalar_type()));
    case AttentionKernel::sdpa:
      if (in.q.is_cpu()) return sdpa::attention_backward(gout, in, out, lse, sequences, options, grads);
      return sdpa::device_attention_backward(gout, in, out, lse, sequences, options, grads);
    default:
      return reference::attention_backward(gout, in, out, lse, sequences, options, grads);
  }
}

}  // namespace qft::ops
