#include "qft/ops/generic.h"

#include <algorithm>
#include <cmath>

#include "gated_delta_paths.h"
#include <ATen/TensorOperators.h>
#include <ATen/ops/exp.h>
#include <ATen/ops/linalg_solve_triangular.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/rsqrt.h>

namespace qft::ops::generic {
namespace {

constexpr double kNormEps = 1e-6;

/// Returns [heads, rows, width] from [rows, heads, width].
at::Tensor by_heads(const at::Tensor& x) {
  return x.to(accumulate_dtype(x.scalar_type())).transpose(0, 1).contiguous();
}

/// A chunk's rows by head, with keys and queries repeated for each value head.
struct Rows {
  at::Tensor q, k, v, beta,
      sums;  ///< beta [value heads, rows, 1]; sums: of g, [value heads, rows], in fp64 because differences are taken
  std::int64_t group, count;

  Rows(const GatedDeltaTensors& in, const at::Tensor& before) : group(in.v.size(1) / in.k.size(1)), count(in.v.size(0)) {
    q = by_heads(in.q), k = by_heads(in.k), v = by_heads(in.v);
    q = (q * reciprocal_norm(q) / std::sqrt(static_cast<double>(q.size(-1)))).repeat_interleave(group, 0);
    k = (k * reciprocal_norm(k)).repeat_interleave(group, 0);
    beta = in.beta.t().unsqueeze(-1);
    sums = in.g.t().to(at::kDouble).cumsum(1);
    if (before.defined()) sums = sums + before.unsqueeze(-1);
  }
};

/// Returns D_ij = exp(G_i - G_j) for j <= i + `before`, else 0.
at::Tensor decays(const at::Tensor& rows, const at::Tensor& columns, std::int64_t before, at::ScalarType dtype) {
  return at::exp((rows.unsqueeze(-1) - columns.unsqueeze(-2)).clamp_max(0)).tril(before).to(dtype);
}

void advance_chunk(const GatedDeltaTensors& in, GatedDeltaState& s, const at::Tensor& out) {
  const std::int64_t before = s.tokens % kDeltaChunk, after = before + in.v.size(0);
  const Rows rows(in, before == 0 ? at::Tensor() : s.decay.select(1, before - 1));
  s.decay.slice(1, before, after).copy_(rows.sums);
  const std::int64_t heads = s.state.size(0), stride = rows.group;
  s.keys.slice(2, before, after).copy_(transposed(rows.k.slice(0, 0, heads, stride)));
  const at::Tensor keys = s.keys.slice(2, 0, after).repeat_interleave(rows.group, 0), sums = s.decay.slice(1, 0, after);
  const at::ScalarType dtype = s.state.scalar_type();
  const at::Tensor decay = decays(rows.sums, sums, before, dtype), from_start = at::exp(rows.sums).to(dtype).unsqueeze(-1);
  const at::Tensor system = (at::matmul(rows.k, keys) * decay * rows.beta).tril(before - 1);
  at::Tensor right = (rows.v - from_start * at::matmul(rows.k, s.state)) * rows.beta;
  if (before > 0) right = right - at::matmul(system.slice(2, 0, before), s.updates.slice(1, 0, before));
  s.updates.slice(1, before, after)
      .copy_(at::linalg_solve_triangular(system.slice(2, before, after), right, /*upper=*/false, /*left=*/true,
                                         /*unitriangular=*/true));
  const at::Tensor updates = s.updates.slice(1, 0, after);
  if (out.defined()) {
    const at::Tensor o = from_start * at::matmul(rows.q, s.state) + at::matmul(at::matmul(rows.q, keys) * decay, updates);
    out.copy_(o.transpose(0, 1));
  }
  s.tokens += in.v.size(0);
  if (after < kDeltaChunk) return;
  const at::Tensor last = sums.slice(1, after - 1, after), to_end = at::exp(last - sums).to(dtype).unsqueeze(1);
  s.state.copy_(at::exp(last).to(dtype).unsqueeze(-1) * s.state + at::matmul(keys * to_end, updates));
}

at::Tensor group_sum(const at::Tensor& x, std::int64_t group) {
  return x.reshape({x.size(0) / group, group, x.size(1), x.size(2)}).sum(1);
}

}  // namespace

at::Tensor reciprocal_norm(const at::Tensor& x) {
  return at::rsqrt(x.square().sum(-1, true) + kNormEps);
}

at::Tensor norm_backward(const at::Tensor& x, const at::Tensor& gy, double scale) {
  const at::Tensor r = reciprocal_norm(x), unit = x * r, g = gy * scale;
  return r * (g - unit * (unit * g).sum(-1, true));
}

void advance_delta(const GatedDeltaTensors& rows, GatedDeltaState& state, const at::Tensor& out) {
  for (std::int64_t at = 0, n = 0; at < rows.v.size(0); at += n) {
    n = std::min(kDeltaChunk - state.tokens % kDeltaChunk, rows.v.size(0) - at);
    const auto part = [&](const at::Tensor& t) { return t.narrow(0, at, n); };
    advance_chunk({part(rows.q), part(rows.k), part(rows.v), part(rows.g), part(rows.beta)}, state,
                  out.defined() ? part(out) : at::Tensor());
  }
}

void delta_chunk_backward(const at::Tensor& gout, const GatedDeltaTensors& in, const at::Tensor& state,
                          const GatedDeltaTensors& grads, const at::Tensor& gstate) {
  const Rows rows(in, {});
  const at::ScalarType dtype = state.scalar_type();
  const at::Tensor decay = decays(rows.sums, rows.sums, 0, dtype), start = at::exp(rows.sums).to(dtype).unsqueeze(-1);
  const at::Tensor last = rows.sums.slice(1, rows.count - 1), end = at::exp(last - rows.sums).to(dtype).unsqueeze(-1);
  const at::Tensor whole = at::exp(last).to(dtype).unsqueeze(-1);  // the chunk's decay
  const at::Tensor kk = at::matmul(rows.k, transposed(rows.k)), qk = at::matmul(rows.q, transposed(rows.k));
  const at::Tensor system = (kk * decay * rows.beta).tril(-1), weights = qk * decay;
  const at::Tensor left = rows.v - start * at::matmul(rows.k, state);  // the part of the values that the state does not predict
  const at::Tensor u = at::linalg_solve_triangular(system, left * rows.beta, false, true, true);
  const at::Tensor go = by_heads(gout);
  const at::Tensor gu = at::matmul(transposed(weights), go) + at::matmul(rows.k * end, gstate);
  const at::Tensor w = at::linalg_solve_triangular(transposed(system), gu, true, true, true);  // gradient of left * beta
  // Gradients of the products q k and k k.
  const at::Tensor gqk = at::matmul(go, transposed(u)) * decay, gkk_scaled = (-at::matmul(w, transposed(u)) * decay).tril(-1);
  const at::Tensor gkk = gkk_scaled * rows.beta;
  const at::Tensor from_k = -rows.beta * start * w, from_q = start * go;  // gradients of k S and q S
  const at::Tensor k_state = at::matmul(from_k, transposed(state)), q_state = at::matmul(from_q, transposed(state));
  const at::Tensor written = end * at::matmul(u, transposed(gstate));
  const at::Tensor gq = q_state + at::matmul(gqk, rows.k);
  const at::Tensor gk = k_state + written + at::matmul(transposed(gqk), rows.q) + at::matmul(gkk + transposed(gkk), rows.k);
  const at::Tensor pairs = gqk * qk + gkk * kk, from_end = (rows.k * written).sum(-1);
  at::Tensor gsums = (rows.k * k_state + rows.q * q_state).sum(-1) + pairs.sum(-1) - pairs.sum(-2) - from_end;
  gsums.select(1, rows.count - 1).add_(from_end.sum(-1) + (whole * gstate * state).sum(-1).sum(-1));
  grads.g.copy_(gsums.to(at::kDouble).flip(1).cumsum(1).flip(1).t());
  grads.beta.copy_(((w * left).sum(-1) + (gkk_scaled * kk).sum(-1)).t());
  grads.v.copy_((rows.beta * w).transpose(0, 1));
  const double scale = 1.0 / std::sqrt(static_cast<double>(in.q.size(-1)));
  grads.q.copy_(norm_backward(by_heads(in.q), group_sum(gq, rows.group), scale).transpose(0, 1));
  grads.k.copy_(norm_backward(by_heads(in.k), group_sum(gk, rows.group), 1.0).transpose(0, 1));
  gstate.copy_(whole * gstate + at::matmul(transposed(rows.k), from_k) + at::matmul(transposed(rows.q), from_q));
}

}  // namespace qft::ops::generic
