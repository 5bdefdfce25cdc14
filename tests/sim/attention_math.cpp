#include "attention_math.h"

#include <limits>

#include <ATen/ATen.h>

namespace qft::sim {
namespace {

/// Returns the rows of one sequence as [heads, n, d] in fp64, with each head repeated `times` times.
at::Tensor heads_of(const at::Tensor& rows, std::int64_t first, std::int64_t n, std::int64_t times) {
  return rows.narrow(0, first, n).to(at::kDouble).transpose(0, 1).repeat_interleave(times, 0);
}

/// Writes [heads, n, d], summed over each group of `times` heads.
void store(const at::Tensor& rows, std::int64_t first, const at::Tensor& heads, std::int64_t times) {
  const at::Tensor sums = heads.unflatten(0, {heads.size(0) / times, times}).sum(1);
  rows.narrow(0, first, heads.size(1)).copy_(sums.transpose(0, 1));
}

at::Tensor scores(const PackedAttention& a, const at::Tensor& q, const at::Tensor& k) {
  const at::Tensor query = at::arange(q.size(1)).unsqueeze(1), key = at::arange(q.size(1)).unsqueeze(0);
  at::Tensor hidden = key > query;
  if (a.window > 0) hidden = hidden.logical_or(key <= query - a.window);
  return at::matmul(q, k.transpose(1, 2)).mul(a.scale).masked_fill(hidden, -std::numeric_limits<double>::infinity());
}

/// Calls `visit` with the first row and the length of each sequence that is not empty.
template <class F>
void each_sequence(const PackedAttention& a, std::int64_t rows, const F& visit) {
  const std::int32_t* const at = a.bounds.const_data_ptr<std::int32_t>();
  for (std::int64_t s = 0; s + 1 < a.bounds.numel(); ++s) {
    const std::int64_t first = at[s], n = at[s + 1] - at[s];
    TORCH_CHECK(first >= 0 && n >= 0 && first + n <= rows, "sequence ", s, " is rows ", first, " to ", first + n, " of ", rows);
    TORCH_CHECK(n <= a.longest, "sequence ", s, " has ", n, " tokens, more than max_seqlen, ", a.longest);
    if (n > 0) visit(first, n);
  }
}

}  // namespace

at::Tensor attend(const PackedAttention& a, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                  const at::Tensor& out) {
  const std::int64_t group = q.size(1) / k.size(1);
  const at::Tensor lse = at::full({q.size(1), q.size(0)}, std::numeric_limits<double>::quiet_NaN(), at::kDouble);
  each_sequence(a, q.size(0), [&](std::int64_t first, std::int64_t n) {
    const at::Tensor z = scores(a, heads_of(q, first, n, 1), heads_of(k, first, n, group)), l = at::logsumexp(z, -1);
    lse.narrow(1, first, n).copy_(l);
    store(out, first, at::matmul((z - l.unsqueeze(-1)).exp(), heads_of(v, first, n, group)), 1);
  });
  return lse;
}

void attend_backward(const PackedAttention& a, const at::Tensor& gout, const at::Tensor& q, const at::Tensor& k,
                     const at::Tensor& v, const at::Tensor& out, const at::Tensor& lse, const AttentionGrads& grads) {
  const std::int64_t group = q.size(1) / k.size(1);
  each_sequence(a, q.size(0), [&](std::int64_t first, std::int64_t n) {
    const at::Tensor qs = heads_of(q, first, n, 1), ks = heads_of(k, first, n, group), vs = heads_of(v, first, n, group);
    const at::Tensor go = heads_of(gout, first, n, 1), o = heads_of(out, first, n, 1);
    const at::Tensor p = (scores(a, qs, ks) - lse.narrow(1, first, n).unsqueeze(-1)).exp();
    const at::Tensor ds = p.mul(at::matmul(go, vs.transpose(1, 2)) - (go * o).sum(-1, true)).mul(a.scale);
    store(grads.q, first, at::matmul(ds, ks), 1);
    store(grads.k, first, at::matmul(ds.transpose(1, 2), qs), group);
    store(grads.v, first, at::matmul(p.transpose(1, 2), go), group);
  });
}

}  // namespace qft::sim
