#include "qft/ops/attention.h"

#include "qft/core/error.h"
#include "qft/device/upload.h"

#include <algorithm>

#include "attention_blocked_cpu.h"
#include "attention_paths.h"
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>

namespace qft::ops {

PackedSequences PackedSequences::build(std::span<const std::int32_t> cu_seqlens, c10::Device device,
                                       std::span<const std::int32_t> shared) {
  require(!cu_seqlens.empty() && cu_seqlens.front() == 0 && std::ranges::is_sorted(cu_seqlens),
          "sequence boundaries must start with 0 and not decrease ({} given)", cu_seqlens.size());
  PackedSequences packed;
  packed.cu_seqlens.assign(cu_seqlens.begin(), cu_seqlens.end());
  for (std::size_t s = 1; s < cu_seqlens.size(); ++s)
    packed.max_length = std::max(packed.max_length, cu_seqlens[s] - cu_seqlens[s - 1]);
  if (!device.is_cpu()) packed.device_cu_seqlens = device::upload(packed.cu_seqlens, device);
  packed.shared = SharedRows::build(packed.cu_seqlens, shared);
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
  QFT_ASSERT(sequences.num_rows() == in.q.size(0), "the sequences have {} rows, the tensors {}", sequences.num_rows(),
             in.q.size(0));
  QFT_ASSERT(out.is_contiguous() && out.numel() == in.q.numel(), "out must be contiguous [T, heads * head_dim]");
  QFT_ASSERT(lse.is_contiguous() && lse.size(0) == in.q.size(1) && lse.size(1) == in.q.size(0),
             "lse must be contiguous [heads, T]");
}

/// Returns the kernel to use; throws if the requested one does not support the data.
AttentionKernel resolve_kernel(AttentionKernel kernel, const at::Tensor& q) {
  if (kernel == AttentionKernel::automatic) return default_attention_kernel(q);
  require(kernel != AttentionKernel::blocked || (q.is_cpu() && blocked::available(q.scalar_type())),
          "the blocked attention kernel does not support {} on {} on this machine: use 'automatic'",
          c10::toString(q.scalar_type()), q.device().str());
  require(kernel != AttentionKernel::sdpa || q.is_cpu() || default_attention_kernel(q) == AttentionKernel::sdpa,
          "LibTorch has no attention kernel for {} heads of {} on {}: use 'automatic'", c10::toString(q.scalar_type()), q.size(2),
          q.device().str());
  return kernel;
}

/// Drops a window that no sequence exceeds.
AttentionOptions without_unused_window(AttentionOptions options, const PackedSequences& sequences) {
  if (options.window >= sequences.max_length) options.window = 0;
  return options;
}

void forward(AttentionKernel kernel, const QkvViews& in, const PackedSequences& sequences, const AttentionOptions& options,
             const at::Tensor& out, const at::Tensor& lse, Workspace& workspace) {
  switch (kernel) {
    case AttentionKernel::blocked:
      return blocked::attention_forward(in, sequences, options, out, lse, workspace,
                                        blocked::preferred_tile_type(in.q.scalar_type()));
    case AttentionKernel::sdpa:
      if (in.q.is_cpu()) return sdpa::attention_forward(in, sequences, options, out, lse);
      return sdpa::device_attention_forward(in, sequences, options, out, lse);
    default:
      return reference::attention_forward(in, sequences, options, out, lse);
  }
}

void backward(AttentionKernel kernel, const AttentionBackward& t, const PackedSequences& sequences,
              const AttentionOptions& options, Workspace& workspace) {
  switch (kernel) {
    case AttentionKernel::blocked:
      return blocked::attention_backward(t, sequences, options, workspace, blocked::preferred_tile_type(t.in.q.scalar_type()));
    case AttentionKernel::sdpa:
      if (t.in.q.is_cpu()) return sdpa::attention_backward(t, sequences, options);
      return sdpa::device_attention_backward(t, sequences, options);
    default:
      return reference::attention_backward(t, sequences, options);
  }
}

/// Buffers with one row per token, for kernels if sequences share rows.
class ExpandedRows {
 public:
  ExpandedRows(const QkvViews& in, const at::Tensor& lse, const SharedRows& shared, Workspace& workspace)
      : in_(in), lse_(lse), shared_(shared), workspace_(workspace) {}

  QkvViews qkv(const char* name) const {
    const std::int64_t heads = in_.q.size(1), kv_heads = in_.k.size(1), head_dim = in_.q.size(2);
    return split_qkv(get(name, {shared_.tokens, (heads + 2 * kv_heads) * head_dim}), heads, kv_heads, head_dim);
  }
  QkvViews inputs() const {
    const QkvViews all = qkv(kSharedIn);
    expand_rows(in_.q, shared_, all.q);
    expand_rows(in_.k, shared_, all.k);
    expand_rows(in_.v, shared_, all.v);
    return all;
  }
  at::Tensor out(const char* name) const { return get(name, {shared_.tokens, in_.q.size(1) * in_.q.size(2)}); }
  at::Tensor lse() const { return workspace_.get(kSharedStatistics, {lse_.size(0), shared_.tokens}, lse_.scalar_type()); }

 private:
  at::Tensor get(const char* name, at::IntArrayRef sizes) const { return workspace_.get(name, sizes, in_.q.scalar_type()); }
  const QkvViews& in_;
  const at::Tensor& lse_;
  const SharedRows& shared_;
  Workspace& workspace_;
};

}  // namespace

at::Tensor masked_keys(std::int64_t queries, std::int64_t keys, std::int64_t window, c10::Device device) {
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
  const AttentionOptions options = without_unused_window(given, sequences);
  const SharedRows& shared = sequences.shared;
  if (!shared.any()) return forward(resolve_kernel(kernel, in.q), in, sequences, options, out, lse, workspace);
  const ExpandedRows rows(in, lse, shared, workspace);
  const at::Tensor all_out = rows.out(kSharedOut), all_lse = rows.lse();
  forward(resolve_kernel(kernel, in.q), rows.inputs(), sequences, options, all_out, all_lse, workspace);
  first_rows(all_out, shared, out);
  first_rows(all_lse.t(), shared, lse.t());
}

void attention_backward(const AttentionBackward& t, const PackedSequences& sequences, const AttentionOptions& given,
                        Workspace& workspace, AttentionKernel kernel) {
  check(t.in, sequences, t.out, t.lse);
  const AttentionOptions options = without_unused_window(given, sequences);
  const SharedRows& shared = sequences.shared;
  if (!shared.any()) return backward(resolve_kernel(kernel, t.in.q), t, sequences, options, workspace);
  const ExpandedRows rows(t.in, t.lse, shared, workspace);
  const at::Tensor all_gout = rows.out(kSharedGradOut), all_out = rows.out(kSharedOut), all_lse = rows.lse();
  expand_gradient(t.gout, shared, all_gout);
  expand_rows(t.out, shared, all_out);
  expand_rows(t.lse.t(), shared, all_lse.t());
  const QkvViews all_grads = rows.qkv(kSharedGradIn);
  backward(resolve_kernel(kernel, t.in.q), {all_gout, rows.inputs(), all_out, all_lse, all_grads}, sequences, options, workspace);
  sum_tokens(all_grads.q, shared, t.grads.q);
  sum_tokens(all_grads.k, shared, t.grads.k);
  sum_tokens(all_grads.v, shared, t.grads.v);
}

}  // namespace qft::ops
