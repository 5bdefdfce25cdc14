// Attention with explicit matrices, one sequence at a time, for any device and dtype. Tests compare the fast paths with it.
#include "qft/ops/generic.h"

#include "attention_paths.h"
#include <ATen/TensorOperators.h>
#include <ATen/ops/logsumexp.h>
#include <ATen/ops/matmul.h>

namespace qft::ops::reference {
namespace {

struct Heads {
  std::int64_t kv_heads, group, head_dim;
};

Heads heads_of(const QkvViews& in) {
  return {in.k.size(1), in.q.size(1) / in.k.size(1), in.q.size(2)};
}

/// Returns one sequence's rows as [kv_heads, group, n, head_dim] in the accumulation dtype; group is 1 for keys and values.
at::Tensor by_head(const at::Tensor& rows, std::int64_t first, std::int64_t n, const Heads& h) {
  return rows.narrow(0, first, n)
      .reshape({n, h.kv_heads, -1, h.head_dim})
      .permute({1, 2, 0, 3})
      .to(generic::accumulate_dtype(rows.scalar_type()));
}

/// Inverse of by_head(): writes into rows of `to`.
void store(const at::Tensor& to, std::int64_t first, const at::Tensor& values) {
  const at::Tensor rows = to.narrow(0, first, values.size(2));
  rows.copy_(values.permute({2, 0, 1, 3}).reshape(rows.sizes()));
}

/// Returns scale * q k^T, with -inf for masked keys: [kv_heads, group, n, n].
at::Tensor scores(const at::Tensor& q, const at::Tensor& k, const AttentionOptions& options) {
  const std::int64_t n = q.size(2);
  return at::matmul(q, k.transpose(-2, -1))
      .mul_(options.scale)
      .masked_fill_(masked_keys(n, n, options.window, q.device()), -std::numeric_limits<double>::infinity());
}

}  // namespace

void attention_forward(const QkvViews& in, const PackedSequences& sequences, const AttentionOptions& options,
                       const at::Tensor& out, const at::Tensor& lse) {
  const Heads h = heads_of(in);
  for (std::int64_t s = 0; s < sequences.num_sequences(); ++s) {
    const std::int64_t first = sequences.cu_seqlens[s], n = sequences.cu_seqlens[s + 1] - first;
    if (n == 0) continue;
    const at::Tensor q = by_head(in.q, first, n, h), k = by_head(in.k, first, n, h), v = by_head(in.v, first, n, h);
    const at::Tensor z = scores(q, k, options);
    const at::Tensor l = at::logsumexp(z, -1);
    lse.narrow(1, first, n).copy_(l.reshape({-1, n}));
    store(out, first, at::matmul((z - l.unsqueeze(-1)).exp_(), v));
  }
}

void attention_backward(const AttentionBackward& t, const PackedSequences& sequences, const AttentionOptions& options) {
  const Heads h = heads_of(t.in);
  for (std::int64_t s = 0; s < sequences.num_sequences(); ++s) {
    const std::int64_t first = sequences.cu_seqlens[s], n = sequences.cu_seqlens[s + 1] - first;
    if (n == 0) continue;
    const at::Tensor q = by_head(t.in.q, first, n, h), k = by_head(t.in.k, first, n, h), v = by_head(t.in.v, first, n, h);
    const at::Tensor go = by_head(t.gout, first, n, h), o = by_head(t.out, first, n, h);
    const at::Tensor l = t.lse.narrow(1, first, n).reshape({h.kv_heads, h.group, n, 1});
    const at::Tensor p = (scores(q, k, options) - l).exp_();
    // Softmax backward: dS = P * (dP - rowsum(dO * O)); this row sum equals rowsum(P * dP).
    const at::Tensor ds = p.mul(at::matmul(go, v.transpose(-2, -1)) - (go * o).sum(-1, true)).mul_(options.scale);
    store(t.grads.q, first, at::matmul(ds, k));
    store(t.grads.k, first, at::matmul(ds.transpose(-2, -1), q).sum(1, true));
    store(t.grads.v, first, at::matmul(p.transpose(-2, -1), go).sum(1, true));
  }
}

}  // namespace qft::ops::reference
