// Arguments of the device kernels of the gated delta rule (ops/gated_delta.h): chunks, and scratch memory for them. Needs no
// LibTorch.
#pragma once

#include "qft/ops/delta_chunks.h"
#include "qft/ops/kernel_args.h"

#include <cstdint>

namespace qft::ops {

/// Maximum number of chunks with scratch memory at a time, in consecutive segments.
inline constexpr std::int64_t kDeltaWaveChunks = 2 * kDeltaSegment / kDeltaChunk;
/// Maximum key size of the kernels.
inline constexpr std::int64_t kMaxDeltaKeyDim = 256;

/// Added under the square root of the key and query norms.
inline constexpr float kDeltaNormEps = 1e-6F;

/// Tokens [token, token + rows) of a sequence.
struct DeltaChunk {
  std::int32_t token, rows;
  std::int32_t kept;  ///< index of the chunk's initial kept state; -1: none is kept here
};
/// Chunks [first, first + count) of a wave that are consecutive in a sequence.
struct DeltaChain {
  std::int32_t first, count;
  std::int32_t before, after;  ///< 1: the sequence has chunks in the wave before, or after
};
/// A wave's first entry and entry count in each table over all waves. `chains` cover sequences, `segments` cover
/// segments.
struct DeltaWave {
  std::int64_t first_chunk, chunks, first_chain, chains, first_segment, segments;
};

/// Scratch memory of a wave, shared by all kernels. Every chunk and head has kDeltaChunk rows, or a square matrix, or a state;
/// rows beyond a sequence's end are zero. Widths are multiples of 4, with zeros in the padding columns.
struct DeltaScratch {
  std::int64_t key_width, value_width;
  double* sums;               ///< G, one number per row and value head
  float *queries, *keys;      ///< normalised, per key head
  float *of_state, *updates;  ///< W with u = U - W S, later overwritten by the head's gradient of q; U, later overwritten by u
  float* weights;             ///< D_ij q_i k_j
  float* states;              ///< S before the chunk
  float* decays;              ///< exp(G_i), exp(G_last - G_i), beta
  float* carry;               ///< two states per head: from the previous wave, and for the next one
  // Backward. gu is the gradient of u, including contributions from later rows in the chunk.
  float *of_gradient, *gupdates;  ///< Z with gu = R + Z gS, later overwritten by k's gradient; R, later overwritten by gu
  /// first q's contribution to the gradient of S; becomes gS, the gradient of the state after the chunk
  float* gstates;
  float* products;  ///< D_ij k_i k_j below the diagonal

  /// Lays out the memory for `chunks` chunks, starting at `from` (may be null). Sets `floats` to the total size.
  static DeltaScratch at(float* from, const DeltaShape& s, std::int64_t chunks, bool backward, std::int64_t& floats) {
    constexpr std::int64_t kRows = kDeltaChunk;
    DeltaScratch m{};
    m.key_width = (s.key_dim + 3) / 4 * 4, m.value_width = (s.value_dim + 3) / 4 * 4;
    floats = 0;
    const auto take = [&](std::int64_t heads, std::int64_t size) {
      float* begin = from == nullptr ? nullptr : from + floats;
      floats += heads * size;
      return begin;
    };
    const std::int64_t key_heads = chunks * s.key_heads, heads = chunks * s.value_heads, state = m.key_width * m.value_width;
    m.sums = reinterpret_cast<double*>(take(heads, 2 * kRows));
    m.queries = take(key_heads, kRows * m.key_width), m.keys = take(key_heads, kRows * m.key_width);
    m.of_state = take(heads, kRows * m.key_width), m.updates = take(heads, kRows * m.value_width);
    m.weights = take(heads, kRows * kRows), m.states = take(heads, state), m.decays = take(heads, 3 * kRows);
    m.carry = take(2 * s.value_heads, state);
    if (!backward) return m;
    m.of_gradient = take(heads, kRows * m.key_width), m.gupdates = take(heads, kRows * m.value_width);
    m.gstates = take(heads, state), m.products = take(heads, kRows * kRows);
    return m;
  }
  static std::int64_t floats(const DeltaShape& s, std::int64_t chunks, bool backward) {
    std::int64_t count = 0;
    at(nullptr, s, chunks, backward, count);
    return count;
  }
};

/// Arguments of the recurrence over chunks.
struct DeltaStates {
  DeltaShape shape;
  DeltaScratch scratch;
  const DeltaChunk* chunks;  ///< chunks of the wave
  const DeltaChain* chains;
  float* keep;          ///< forward: kept states [.., value heads, Dk, Dv], or null
  const float* kept;    ///< backward: initial states of the segments, or null
  std::int64_t parity;  ///< index of the wave's carry
};

/// Operands of a call.
template <class T>
struct DeltaOperands {
  HeadRows<const T> q, k, v, gout;
  HeadRows<T> out, gq, gk, gv;
  const float *g, *beta;  ///< [tokens, value heads]
  float *gg, *gbeta;
  DeltaShape shape;
  DeltaScratch scratch;
  const DeltaChunk* chunks;    ///< all waves' entries, as in chains and segments
  const DeltaChain* chains;    ///< one per sequence
  const DeltaChain* segments;  ///< one per segment
  float* keep;                 ///< as in DeltaStates
  const float* kept;
};

}  // namespace qft::ops
