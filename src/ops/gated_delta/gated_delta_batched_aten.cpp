#include "qft/device/upload.h"
#include "qft/ops/generic.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "gated_delta_paths.h"
#include <ATen/TensorOperators.h>
#include <ATen/ops/addcmul.h>
#include <ATen/ops/baddbmm.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/exp.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/linalg_solve_triangular.h>
#include <ATen/ops/matmul.h>

namespace qft::ops::batched {
namespace {

using generic::norm_backward, generic::reciprocal_norm, generic::transposed;

constexpr std::int64_t kWaveChunks = kDeltaSegment / kDeltaChunk;

/// Tokens of a sequence up to the next kept state. kept: index of the segment's initial state, -1 for zero.
struct Segment {
  std::int64_t first, rows, kept;
  bool last;
  std::int64_t chunks() const { return (rows + kDeltaChunk - 1) / kDeltaChunk; }
};

/// Consecutive segments with at most kWaveChunks chunks in total.
struct Wave {
  std::vector<Segment> segments;
  std::int64_t first = 0, tokens = 0, chunks = 0;
  at::Tensor rows;     ///< int64 [chunks * kDeltaChunk]: the token of each chunk row; arbitrary for padding
  at::Tensor padding;  ///< bool [chunks * kDeltaChunk]: rows beyond a sequence's end
  at::Tensor places;   ///< int64 [tokens]: each token's row
};

std::vector<Segment> segments_of(const PackedSequences& sequences) {
  std::vector<Segment> all;
  std::int64_t kept = 0;
  for (std::size_t s = 0; s + 1 < sequences.cu_seqlens.size(); ++s) {
    const std::int64_t begin = sequences.cu_seqlens[s], end = sequences.cu_seqlens[s + 1];
    for (std::int64_t at = begin; at < end; at += kDeltaSegment)
      all.push_back({at, std::min(kDeltaSegment, end - at), at == begin ? -1 : kept++, end - at <= kDeltaSegment});
  }
  return all;
}

std::vector<Wave> waves_of(const PackedSequences& sequences, c10::Device device) {
  std::vector<Wave> waves;
  std::vector<std::int64_t> rows, places;
  for (const Segment& segment : segments_of(sequences)) {
    if (waves.empty() || waves.back().chunks + segment.chunks() > kWaveChunks) waves.emplace_back().first = segment.first;
    Wave& wave = waves.back();
    for (std::int64_t i = 0; i < segment.chunks() * kDeltaChunk; ++i) rows.push_back(i < segment.rows ? segment.first + i : -1);
    for (std::int64_t i = 0; i < segment.rows; ++i) places.push_back(wave.chunks * kDeltaChunk + i);
    wave.segments.push_back(segment);
    wave.tokens += segment.rows;
    wave.chunks += segment.chunks();
  }
  if (rows.empty()) return waves;
  const at::Tensor tokens = device::upload(rows, device), all_places = device::upload(places, device);
  const at::Tensor padding = tokens < 0, clamped = tokens.clamp_min(0);
  std::int64_t row = 0;
  for (Wave& wave : waves) {
    const std::int64_t count = wave.chunks * kDeltaChunk;
    wave.rows = clamped.narrow(0, row, count);
    wave.padding = padding.narrow(0, row, count);
    wave.places = all_places.narrow(0, wave.first, wave.tokens);
    row += count;
  }
  return waves;
}

/// A wave's operands, and the products within its chunks: [chunks, key heads, value heads per key head, rows, width]. The third
/// dimension is 1 for data that a key head's value heads share.
class Chunks {
 public:
  Chunks(const GatedDeltaTensors& in, const Wave& wave)
      : wave_(wave), key_heads_(in.k.size(1)), group_(in.v.size(1) / in.k.size(1)), query_scale_(1.0 / std::sqrt(in.q.size(2))) {
    raw_q = gathered(in.q).unsqueeze(2), raw_k = gathered(in.k).unsqueeze(2);
    q = raw_q * reciprocal_norm(raw_q) * query_scale_, k = raw_k * reciprocal_norm(raw_k);
    v = by_key_head(gathered(in.v));
    beta = by_key_head(gathered(in.beta.unsqueeze(-1)));
    const at::Tensor sums =
        by_key_head(gathered(in.g.unsqueeze(-1))).squeeze(-1).to(at::kDouble).cumsum(-1);  // fp64, because differences are taken
    const at::Tensor last = sums.narrow(-1, kDeltaChunk - 1, 1);
    const at::ScalarType dtype = v.scalar_type();
    decay = (sums.unsqueeze(-1) - sums.unsqueeze(-2)).clamp_max(0).to(dtype).exp_().tril();
    start = at::exp(sums.to(dtype)).unsqueeze(-1), end = at::exp((last - sums).to(dtype)).unsqueeze(-1);
    whole = at::exp(last.to(dtype)).unsqueeze(-1);
    kk = at::matmul(k, transposed(k));
    system = (kk * decay * beta).tril_(-1);
    k_start = k * beta * start, k_end = k * end;
    const at::Tensor solved = at::linalg_solve_triangular(system, at::cat({v * beta, k_start}, -1), /*upper=*/false,
                                                          /*left=*/true, /*unitriangular=*/true);
    own = solved.narrow(-1, 0, v.size(-1)), of_state = solved.narrow(-1, v.size(-1), k.size(-1));
  }

  /// Returns [chunks, heads, rows, width] from [T, heads, width], zero beyond a sequence's end.
  at::Tensor gathered(const at::Tensor& x) const {
    at::Tensor rows = at::index_select(x, 0, wave_.rows).to(generic::accumulate_dtype(x.scalar_type()));
    rows.masked_fill_(wave_.padding.view({-1, 1, 1}), 0);
    return rows.unflatten(0, {wave_.chunks, kDeltaChunk}).transpose(1, 2).contiguous();
  }
  at::Tensor by_key_head(const at::Tensor& x) const { return x.unflatten(1, {key_heads_, group_}); }

  /// Returns [chunks, value heads, ..] of data with one entry per value head.
  static at::Tensor by_head(const at::Tensor& x) { return x.flatten(1, 2); }

  /// Writes [chunks, heads, rows, width] to the wave's tokens of `to` [T, heads, width].
  void scatter(const at::Tensor& x, const at::Tensor& to) const {
    const at::Tensor rows = x.transpose(1, 2).flatten(0, 1);
    to.narrow(0, wave_.first, wave_.tokens).copy_(at::index_select(rows, 0, wave_.places));
  }
  /// Likewise for one number per row: [chunks, key heads, group, rows] to [T, value heads].
  void scatter_numbers(const at::Tensor& x, const at::Tensor& to) const { scatter(by_head(x).unsqueeze(-1), to.unsqueeze(-1)); }
  /// Sums the gradients over the value heads that share a key head, and backpropagates through the norm.
  void scatter_keys(const at::Tensor& raw, const at::Tensor& g, double scale, const at::Tensor& to) const {
    scatter(norm_backward(raw.squeeze(2), g.sum(2), scale), to);
  }

  /// Returns a buffer for one state per chunk and value head.
  at::Tensor state_room() const { return at::empty({wave_.chunks, key_heads_ * group_, k.size(-1), v.size(-1)}, v.options()); }
  const Wave& wave() const { return wave_; }
  double query_scale() const { return query_scale_; }

  at::Tensor raw_q, raw_k, q, k, v, beta, decay, kk, system;
  at::Tensor start, end, whole;  ///< exp(G_i), exp(G_last - G_i), exp(G_last)
  at::Tensor k_start, k_end;     ///< k times beta and `start`; k times `end`
  at::Tensor own, of_state;      ///< u = own - of_state S

 private:
  const Wave& wave_;
  std::int64_t key_heads_, group_;
  double query_scale_;
};

/// Computes S before each chunk and each chunk's u, from chunk to chunk. Forward: `carry` passes the state from one segment of a
/// sequence to the next, and is written to `kept` if defined. Backward: there is no carry, and segments start from `kept`.
struct Recurrence {
  at::Tensor states, updates;  ///< [chunks, value heads, Dk, Dv], [chunks, value heads, rows, Dv]

  Recurrence(const Chunks& c, const at::Tensor& kept, const at::Tensor& carry)
      : states(c.state_room()), updates(Chunks::by_head(c.own).contiguous()) {
    const at::Tensor of_state = Chunks::by_head(c.of_state), k_end = transposed(Chunks::by_head(c.k_end)),
                     whole = Chunks::by_head(c.whole);
    std::int64_t i = 0;
    for (const Segment& segment : c.wave().segments) {
      start(segment, states[i], kept, carry);
      for (const std::int64_t end = i + segment.chunks(); i < end; ++i) {
        const at::Tensor state = states[i];
        const at::Tensor u = updates[i].baddbmm_(of_state[i], state, 1, -1);
        const bool ends = i + 1 == end;
        if (ends && (segment.last || !carry.defined())) continue;
        at::Tensor next = ends ? carry : states[i + 1];
        at::mul_out(next, state, whole[i]);
        next.baddbmm_(k_end[i], u);
      }
    }
  }

 private:
  static void start(const Segment& segment, const at::Tensor& state, const at::Tensor& kept, const at::Tensor& carry) {
    if (segment.kept < 0) return void(state.zero_());
    if (carry.defined() && kept.defined()) kept[segment.kept].copy_(carry);
    state.copy_(carry.defined() ? carry : kept[segment.kept]);
  }
};

void forward(const Chunks& c, const at::Tensor& states, const at::Tensor& carry, const at::Tensor& out) {
  const Recurrence r(c, states, carry);
  const at::Tensor state = c.by_key_head(r.states), u = c.by_key_head(r.updates);
  const at::Tensor weights = at::matmul(c.q, transposed(c.k)) * c.decay;
  c.scatter(Chunks::by_head(at::matmul(c.q, state).mul_(c.start).add_(at::matmul(weights, u))), out);
}

/// Computes the gradients of the states after each chunk, and of u / beta, from the last chunk to the first. `carry` passes the
/// gradient from a sequence's segment to the previous segment.
struct GradientRecurrence {
  at::Tensor gstates, gresiduals;

  GradientRecurrence(const Chunks& c, const at::Tensor& weights, const at::Tensor& gout, const at::Tensor& carry)
      : gstates(c.state_room()) {
    const at::Tensor solved =
        at::linalg_solve_triangular(transposed(c.system), at::cat({at::matmul(transposed(weights), gout), c.k_end}, -1),
                                    /*upper=*/true, /*left=*/true, /*unitriangular=*/true);
    gresiduals = Chunks::by_head(solved.narrow(-1, 0, gout.size(-1))).contiguous();
    const at::Tensor of_state = Chunks::by_head(solved.narrow(-1, gout.size(-1), c.k.size(-1)));
    const at::Tensor read = Chunks::by_head(at::matmul(transposed(c.q * c.start), gout)),
                     k_start = transposed(Chunks::by_head(c.k_start)), whole = Chunks::by_head(c.whole);
    std::int64_t end = c.wave().chunks;
    for (auto s = c.wave().segments.rbegin(); s != c.wave().segments.rend(); ++s) {
      const std::int64_t first = end - s->chunks();
      s->last ? gstates[end - 1].zero_() : gstates[end - 1].copy_(carry);
      for (std::int64_t i = end - 1; i >= first; --i) {
        const at::Tensor gstate = gstates[i];
        const at::Tensor gr = gresiduals[i].baddbmm_(of_state[i], gstate);
        if (i == first && s->kept < 0) break;
        at::Tensor before = i == first ? carry : gstates[i - 1];
        at::addcmul_out(before, read[i], whole[i], gstate);
        before.baddbmm_(k_start[i], gr, 1, -1);
      }
      end = first;
    }
  }
};

void backward(const Chunks& c, const at::Tensor& gout_rows, const at::Tensor& states, const at::Tensor& carry,
              const GatedDeltaTensors& grads) {
  const at::Tensor gout = c.by_key_head(c.gathered(gout_rows)), qk = at::matmul(c.q, transposed(c.k));
  const Recurrence r(c, states, {});
  const GradientRecurrence gr(c, qk * c.decay, gout, carry);
  const at::Tensor state = c.by_key_head(r.states), u = c.by_key_head(r.updates), gstate = c.by_key_head(gr.gstates),
                   w = c.by_key_head(gr.gresiduals);
  // Gradients of the products q k and k k.
  const at::Tensor gqk = at::matmul(gout, transposed(u)) * c.decay,
                   gkk_scaled = at::matmul(w, transposed(u)).mul_(c.decay).neg_().tril_(-1), gkk = gkk_scaled * c.beta;
  at::Tensor k_state = at::matmul(w * c.beta * c.start, transposed(state)).neg_(),
             q_state = at::matmul(gout * c.start, transposed(state)), written = at::matmul(u, transposed(gstate)).mul_(c.end);
  const at::Tensor pairs = gqk * qk + gkk * c.kk, from_end = (c.k * written).sum(-1);
  at::Tensor gsums = (c.k * k_state + c.q * q_state).sum(-1) + pairs.sum(-1) - pairs.sum(-2) - from_end;
  gsums.select(-1, kDeltaChunk - 1).add_(from_end.sum(-1) + (gstate * state).sum(-1).sum(-1) * c.whole.squeeze(-1).squeeze(-1));
  c.scatter_numbers(gsums.to(at::kDouble).flip(-1).cumsum(-1).flip(-1), grads.g);
  const at::Tensor left = c.v - at::matmul(c.k, state) * c.start;  // the part of the values that the state does not predict
  c.scatter_numbers((w * left).sum(-1) + (gkk_scaled * c.kk).sum(-1), grads.beta);
  c.scatter(Chunks::by_head(w * c.beta), grads.v);
  // In place: memory use peaks here.
  c.scatter_keys(c.raw_q, q_state.add_(at::matmul(gqk, c.k)), c.query_scale(), grads.q);
  k_state.add_(written).add_(at::matmul(transposed(gqk), c.q)).add_(at::matmul(gkk + transposed(gkk), c.k));
  c.scatter_keys(c.raw_k, k_state, 1.0, grads.k);
}

}  // namespace

void delta_forward(const GatedDeltaTensors& in, const PackedSequences& sequences, const at::Tensor& out,
                   const at::Tensor& states) {
  const at::Tensor carry = at::empty({in.v.size(1), in.k.size(2), in.v.size(2)}, in.g.options());
  for (const Wave& wave : waves_of(sequences, in.v.device())) forward(Chunks(in, wave), states, carry, out);
}

void delta_backward(const at::Tensor& gout, const GatedDeltaTensors& in, const at::Tensor& states,
                    const PackedSequences& sequences, const GatedDeltaTensors& grads) {
  const at::Tensor carry = at::empty({in.v.size(1), in.k.size(2), in.v.size(2)}, in.g.options());
  const std::vector<Wave> waves = waves_of(sequences, in.v.device());
  for (auto wave = waves.rbegin(); wave != waves.rend(); ++wave) backward(Chunks(in, *wave), gout, states, carry, grads);
}

std::int64_t delta_scratch_bytes(const DeltaShape& shape, std::int64_t chunks, at::ScalarType dtype, bool backward) {
  const std::int64_t held = std::min(chunks, kWaveChunks), heads = held * shape.value_heads, dk = shape.key_dim,
                     dv = shape.value_dim;
  const std::int64_t keys = held * shape.key_heads * kDeltaChunk * dk, pairs = heads * kDeltaChunk * kDeltaChunk,
                     states = heads * dk * dv, of_keys = heads * kDeltaChunk * dk, of_values = heads * kDeltaChunk * dv;
  // The tensors of each kind that are alive at the same time.
  const std::int64_t count = backward ? 9 * keys + 10 * pairs + 3 * states + 9 * of_keys + 8 * of_values
                                      : 4 * keys + 5 * pairs + states + 4 * of_keys + 6 * of_values;
  return count * (dtype == at::kDouble ? 8 : 4);
}

}  // namespace qft::ops::batched
