#include "qft/ops/gated_delta.h"

#include "qft/core/error.h"
#include "qft/ops/generic.h"

#include <algorithm>
#include <vector>

#include "../common/device_kernels.h"
#include "gated_delta_cuda.h"
#include "gated_delta_paths.h"
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

namespace qft::ops {
namespace {

GatedDeltaTensors rows_of(const GatedDeltaTensors& t, std::int64_t first, std::int64_t rows) {
  const auto part = [&](const at::Tensor& x) { return x.narrow(0, first, rows); };
  return {part(t.q), part(t.k), part(t.v), part(t.g), part(t.beta)};
}
DeltaShape shape_of(const GatedDeltaTensors& t) {
  return {t.k.size(1), t.v.size(1), t.k.size(2), t.v.size(2)};
}
std::int64_t segments(std::int64_t tokens) {
  return (tokens + kDeltaSegment - 1) / kDeltaSegment;
}

/// Calls f(first row, rows, index of the sequence's first kept state) for each sequence.
template <class F>
void for_sequences(const PackedSequences& sequences, const F& f) {
  std::int64_t kept = 0;
  for (std::size_t s = 0; s + 1 < sequences.cu_seqlens.size(); ++s) {
    const std::int64_t first = sequences.cu_seqlens[s], rows = sequences.cu_seqlens[s + 1] - first;
    if (rows == 0) continue;
    f(first, rows, kept);
    kept += segments(rows) - 1;
  }
}

void check(const GatedDeltaTensors& t) {
  const auto rows = [](const at::Tensor& x) { return x.dim() == 3 && x.stride(2) == 1; };
  QFT_ASSERT(rows(t.q) && rows(t.k) && rows(t.v) && t.q.sizes() == t.k.sizes() && t.v.size(1) % t.k.size(1) == 0,
             "the gated delta rule does not support these shapes or strides: {} key heads, {} value heads", t.k.size(1),
             t.v.size(1));
  QFT_ASSERT(t.g.is_contiguous() && t.beta.is_contiguous() && t.g.sizes() == t.beta.sizes() && t.g.size(1) == t.v.size(1) &&
                 t.g.scalar_type() == generic::accumulate_dtype(t.v.scalar_type()),
             "g and beta must be contiguous, with the accumulation dtype for g: {} gates for {} value heads", t.g.size(1),
             t.v.size(1));
}

void forward_generic(const GatedDeltaTensors& in, const PackedSequences& sequences, const at::Tensor& out,
                     const at::Tensor& states) {
  for_sequences(sequences, [&](std::int64_t first, std::int64_t rows, std::int64_t kept) {
    GatedDeltaState state = GatedDeltaState::make(shape_of(in), in.g.scalar_type(), in.g.device());
    for (std::int64_t at = 0; at < rows; at += kDeltaSegment) {
      if (at > 0 && states.defined()) states[kept + at / kDeltaSegment - 1].copy_(state.state);
      const std::int64_t count = std::min(kDeltaSegment, rows - at);
      generic::advance_delta(rows_of(in, first + at, count), state, out.narrow(0, first + at, count));
    }
  });
}

void backward_generic(const at::Tensor& gout, const GatedDeltaTensors& in, const at::Tensor& states,
                      const PackedSequences& sequences, const GatedDeltaTensors& grads) {
  for_sequences(sequences, [&](std::int64_t first, std::int64_t rows, std::int64_t kept) {
    GatedDeltaState state = GatedDeltaState::make(shape_of(in), in.g.scalar_type(), in.g.device());
    const at::Tensor gstate = at::zeros_like(state.state);
    for (std::int64_t segment = segments(rows) - 1; segment >= 0; --segment) {
      const std::int64_t begin = segment * kDeltaSegment, end = std::min(begin + kDeltaSegment, rows);
      if (segment > 0)
        state.state.copy_(states[kept + segment - 1]);
      else
        state.state.zero_();
      state.tokens = begin;
      std::vector<at::Tensor> starts;  // states at the starts of the segment's chunks
      for (std::int64_t at = begin; at < end; at += kDeltaChunk) {
        starts.push_back(state.state.clone());
        generic::advance_delta(rows_of(in, first + at, std::min(kDeltaChunk, end - at)), state, {});
      }
      for (auto chunk = static_cast<std::int64_t>(starts.size()) - 1; chunk >= 0; --chunk) {
        const std::int64_t at = begin + chunk * kDeltaChunk, count = std::min(kDeltaChunk, end - at);
        generic::delta_chunk_backward(gout.narrow(0, first + at, count), rows_of(in, first + at, count),
                                      starts[static_cast<std::size_t>(chunk)], rows_of(grads, first + at, count), gstate);
      }
    }
  });
}

/// True if device kernels support these sizes and this dtype.
bool fits_kernels(const DeltaShape& shape, at::ScalarType dtype) {
  return dtype != at::kDouble && shape.key_dim <= kMaxDeltaKeyDim;
}
/// Returns the device's kernels if they support both directions for this data, otherwise null.
const DeviceKernels* kernels_for(const GatedDeltaTensors& in) {
  const DeviceKernels* kernels = device_kernels(in.v);
  const bool both = kernels != nullptr && kernels->delta_forward != nullptr && kernels->delta_backward != nullptr;
  return both && fits_kernels(shape_of(in), in.v.scalar_type()) ? kernels : nullptr;
}
DeltaWork work_of(const GatedDeltaTensors& in, const PackedSequences& sequences, bool backward) {
  return DeltaWork(sequences, shape_of(in), in.v.device(), backward);
}

void forward(const GatedDeltaTensors& in, const PackedSequences& sequences, const at::Tensor& out, const at::Tensor& states,
             Workspace& workspace) {
  if (kernels::supports_delta(in.v.device(), in.v.scalar_type()))
    return kernels::delta_forward(in, sequences, out, states, workspace);
  const DeviceKernels* device = kernels_for(in);
  if (device != nullptr && device->delta_forward(in, work_of(in, sequences, /*backward=*/false), out, states)) return;
  if (!in.v.is_cpu()) return batched::delta_forward(in, sequences, out, states);
  forward_generic(in, sequences, out, states);
}

void backward(const at::Tensor& gout, const GatedDeltaTensors& in, const at::Tensor& states, const PackedSequences& sequences,
              const GatedDeltaTensors& grads, Workspace& workspace) {
  if (kernels::supports_delta(in.v.device(), in.v.scalar_type()))
    return kernels::delta_backward(gout, in, states, sequences, grads, workspace);
  const DeviceKernels* device = kernels_for(in);
  if (device != nullptr && device->delta_backward(gout, in, states, work_of(in, sequences, /*backward=*/true), grads)) return;
  if (!in.v.is_cpu()) return batched::delta_backward(gout, in, states, sequences, grads);
  backward_generic(gout, in, states, sequences, grads);
}

std::int64_t states_of(const PackedSequences& sequences) {
  std::int64_t count = 0;
  for_sequences(sequences, [&](std::int64_t, std::int64_t rows, std::int64_t) { count += segments(rows) - 1; });
  return count;
}

/// Returns buffers shaped like `like`, with one row per token.
GatedDeltaTensors token_rows(const GatedDeltaTensors& like, std::int64_t tokens, const char* name, const char* gates,
                             Workspace& workspace) {
  const DeltaShape s = shape_of(like);
  const std::int64_t keys = s.key_heads * s.key_dim;
  const at::Tensor all = workspace.get(name, {tokens, 2 * keys + s.value_heads * s.value_dim}, like.v.scalar_type());
  const at::Tensor statistics = workspace.get(gates, {2, tokens, s.value_heads}, like.g.scalar_type());
  const auto part = [&](std::int64_t first, std::int64_t heads, std::int64_t dim) {
    return all.narrow(1, first, heads * dim).unflatten(1, {heads, dim});
  };
  return {part(0, s.key_heads, s.key_dim), part(keys, s.key_heads, s.key_dim), part(2 * keys, s.value_heads, s.value_dim),
          statistics.select(0, 0), statistics.select(0, 1)};
}

/// Calls `move` (expand_rows or sum_tokens) for each operand.
template <class F>
void move_all(const F& move, const GatedDeltaTensors& from, const SharedRows& shared, const GatedDeltaTensors& to) {
  move(from.q, shared, to.q);
  move(from.k, shared, to.k);
  move(from.v, shared, to.v);
  move(from.g, shared, to.g);
  move(from.beta, shared, to.beta);
}

GatedDeltaTensors expanded(const GatedDeltaTensors& in, const SharedRows& shared, Workspace& workspace) {
  GatedDeltaTensors all = token_rows(in, shared.tokens, kSharedIn, kSharedStatistics, workspace);
  move_all(expand_rows, in, shared, all);
  return all;
}

at::Tensor values_of(const GatedDeltaTensors& like, std::int64_t tokens, const char* name, Workspace& workspace) {
  return workspace.get(name, {tokens, like.v.size(1), like.v.size(2)}, like.v.scalar_type());
}

}  // namespace

std::int64_t kept_delta_states(const PackedSequences& sequences) {
  return sequences.shared.any() ? 0 : states_of(sequences);
}

std::int64_t shared_delta_bytes(const DeltaShape& shape, std::int64_t tokens, at::ScalarType dtype, bool backward) {
  const auto item = static_cast<std::int64_t>(c10::elementSize(dtype));
  const std::int64_t wide = std::max<std::int64_t>(item, 4), values = shape.value_heads * shape.value_dim;
  const std::int64_t channels = 2 * shape.key_heads * shape.key_dim + values, gates = 2 * shape.value_heads * wide;
  const std::int64_t forward = tokens * (2 * channels * item + gates);
  if (!backward) return forward;
  const std::int64_t states = tokens / kDeltaSegment * shape.value_heads * shape.key_dim * shape.value_dim * wide;
  return forward + tokens * ((channels + values) * item + gates) + states;
}

std::int64_t gated_delta_scratch_bytes(const DeltaShape& shape, const BatchShape& sizes, at::ScalarType dtype, DeltaPath path,
                                       bool backward) {
  const std::int64_t tokens = std::max(sizes.tokens, sizes.expanded), longest = sizes.longest > 0 ? sizes.longest : tokens;
  const std::int64_t chunks = tokens / kDeltaChunk + sizes.num_sequences();
  if (path == DeltaPath::device && fits_kernels(shape, dtype)) return delta_work_bytes(shape, chunks, backward);
  if (path != DeltaPath::cpu) return batched::delta_scratch_bytes(shape, chunks, dtype, backward);
  if (kernels::supports_delta(c10::kCPU, dtype)) return kernels::delta_scratch_bytes(shape, longest, backward);
  const std::int64_t item = dtype == at::kDouble ? 8 : 4, state = shape.value_heads * shape.key_dim * shape.value_dim;
  const std::int64_t rows = shape.value_heads * kDeltaChunk * std::max({shape.key_dim, shape.value_dim, kDeltaChunk});
  constexpr std::int64_t kStates = kDeltaSegment / kDeltaChunk;
  return item * (backward ? 30 * rows + (kStates + 4) * state : 14 * rows + 3 * state);
}

GatedDeltaState GatedDeltaState::make(const DeltaShape& shape, at::ScalarType dtype, c10::Device device) {
  const auto zeros = [&](at::IntArrayRef sizes) { return at::zeros(sizes, at::TensorOptions(dtype).device(device)); };
  return {zeros({shape.value_heads, shape.key_dim, shape.value_dim}), zeros({shape.key_heads, shape.key_dim, kDeltaChunk}),
          zeros({shape.value_heads, kDeltaChunk, shape.value_dim}), zeros({shape.value_heads, kDeltaChunk}).to(at::kDouble), 0};
}

std::int64_t GatedDeltaState::bytes(const DeltaShape& shape, at::ScalarType dtype) {
  const std::int64_t rows = kDeltaChunk * shape.value_dim, state = shape.key_dim * shape.value_dim;
  return (shape.value_heads * (state + rows) + shape.key_heads * shape.key_dim * kDeltaChunk) *
             static_cast<std::int64_t>(c10::elementSize(dtype)) +
         shape.value_heads * kDeltaChunk * static_cast<std::int64_t>(sizeof(double));
}

void gated_delta_forward(const GatedDeltaTensors& in, const PackedSequences& sequences, const at::Tensor& out,
                         const at::Tensor& states, Workspace& workspace) {
  check(in);
  const SharedRows& shared = sequences.shared;
  if (!shared.any()) return forward(in, sequences, out, states, workspace);
  const at::Tensor all_out = values_of(in, shared.tokens, kSharedOut, workspace);
  forward(expanded(in, shared, workspace), sequences, all_out, {}, workspace);
  first_rows(all_out, shared, out);
}

void gated_delta_backward(const at::Tensor& gout, const GatedDeltaTensors& in, const at::Tensor& states,
                          const PackedSequences& sequences, const GatedDeltaTensors& grads, Workspace& workspace) {
  check(in);
  const SharedRows& shared = sequences.shared;
  if (!shared.any()) return backward(gout, in, states, sequences, grads, workspace);
  const GatedDeltaTensors all = expanded(in, shared, workspace);
  const DeltaShape s = shape_of(in);
  const std::int64_t kept = states_of(sequences);
  const at::Tensor all_states =
      workspace.get("op.shared_states", {kept, s.value_heads, s.key_dim, s.value_dim}, in.g.scalar_type());
  if (kept > 0) forward(all, sequences, values_of(in, shared.tokens, kSharedOut, workspace), all_states, workspace);
  const at::Tensor all_gout = values_of(in, shared.tokens, kSharedGradOut, workspace);
  expand_gradient(gout, shared, all_gout);
  const GatedDeltaTensors all_grads = token_rows(in, shared.tokens, kSharedGradIn, kSharedGradStatistics, workspace);
  backward(all_gout, all, all_states, sequences, all_grads, workspace);
  move_all(sum_tokens, all_grads, shared, grads);
}

void gated_delta_decode(const GatedDeltaTensors& in, std::span<const RecurrentSequence> sequences, const at::Tensor& out,
                        Workspace& workspace) {
  check(in);
  if (kernels::supports_delta(in.v.device(), in.v.scalar_type())) return kernels::delta_decode(in, sequences, out, workspace);
  std::int64_t first = 0;
  for (const auto& [rows, state] : sequences) {
    generic::advance_delta(rows_of(in, first, rows), *state, out.narrow(0, first, rows));
    first += rows;
  }
}

}  // namespace qft::ops
