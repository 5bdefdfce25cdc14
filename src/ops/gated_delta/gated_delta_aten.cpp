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

}  // namespace

at::Tensor reciprocal_norm(const at::Tensor& x) {
  return at::rsqrt(x.square().sum(-1, true) + kNormEps);
}

void advance_delta(const GatedDeltaTensors& rows, GatedDeltaState& state, const at::Tensor& out) {
  for (std::int64_t at = 0, n = 0; at < rows.v.size(0); at += n) {
    n = std::min(kDeltaChunk - state.tokens % kDeltaChunk, rows.v.size(0) - at);
    const auto part = [&](const at::Tensor& t) { return t.narrow(0, at, n); };
    advance_chunk({part(rows.q), part(rows.k), part(rows.v), part(rows.g), part(rows.beta)}, state,
                  out.defined() ? part(out) : at::Tensor());
  }
}

}  // namespace qft::ops::generic
