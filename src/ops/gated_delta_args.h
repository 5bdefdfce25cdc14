// What a device's kernels of the gated delta rule (ops/gated_delta.h) take: chunks, and memory for what is known of them. Needs
// no LibTorch.
#pragma once

#include "qft/ops/delta_chunks.h"
#include "qft/ops/kernel_args.h"

#include <cstdint>

namespace qft::ops {

/// Chunks whose scratch memory is there at once, at most: segments that follow one another.
inline constexpr std::int64_t kDeltaWaveChunks = 2 * kDeltaSegment / kDeltaChunk;
/// The widest keys that kernels take.
inline constexpr std::int64_t kDeltaWidestKey = 256;

/// Under the root of a key's or query's norm.
inline constexpr float kDeltaNormEps = 1e-6F;

/// Tokens [token, token + rows) of a sequence.
struct DeltaChunk {
  std::int32_t token, rows;
  std::int32_t kept;  ///< the kept state that it starts from; -1: none is kept there
};
/// Chunks [first, first + count) of a wave that follow one another in a sequence.
struct DeltaChain {
  std::int32_t first, count;
  std::int32_t before, after;  ///< 1: the sequence has chunks in the wave before, or after
};
/// Where a wave's entries begin among those of all waves, and how many there are. Chains are of the chunks of a sequence, or of a
/// segment.
struct DeltaWave {
  std::int64_t first_chunk, chunks, first_chain, chains, first_segment, segments;
};

/// The memory of a wave, for any of its kernels: for each chunk and head a block of kDeltaChunk rows, or of a square of them, or
/// a state; rows beyond a sequence's end are zero. Widths are multiples of 4, with zeros in the last columns.
struct DeltaScratch {
  std::int64_t key_width, value_width;
  double* sums;               ///< G, a number a row and value head
  float *queries, *keys;      ///< after their norms, for each key head
  float *of_state, *updates;  ///< W with u = U - W S, in whose place a head's gradient of q comes; U, which becomes u
  float* weights;             ///< D_ij q_i k_j
  float* states;              ///< S before the chunk
  float* decays;              ///< exp(G_i), exp(G_last - G_i), beta
  float* carry;               ///< twice a state a head: from a wave, and to the next one
  // Backward. gu is the gradient of u, of later rows of the chunk too.
  float *of_gradient, *gupdates;  ///< Z with gu = R + Z gS, likewise of k; R, which becomes gu
  float* gstates;                 ///< what q takes of S, as a gradient; becomes gS, that of the state after the chunk
  float* products;                ///< D_ij k_i k_j below the diagonal

  /// For so many chunks from `from` on, or null; `floats` becomes its size.
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

/// What the states' way through the chunks needs.
struct DeltaStates {
  DeltaShape shape;
  DeltaScratch scratch;
  const DeltaChunk* chunks;  ///< of the wave
  const DeltaChain* chains;
  float* keep;          ///< forward: kept states [.., value heads, Dk, Dv], or null
  const float* kept;    ///< backward: those that segments start from, or null
  std::int64_t parity;  ///< which of the two carries is the wave's
};

/// The operands of a call.
template <class T>
struct DeltaOperands {
  HeadRows<const T> q, k, v, gout;
  HeadRows<T> out, gq, gk, gv;
  const float *g, *beta;  ///< [tokens, value heads]
  float *gg, *gbeta;
  DeltaShape shape;
  DeltaScratch scratch;
  const DeltaChunk* chunks;    ///< of all waves, as are chains and segments
  const DeltaChain* chains;    ///< of sequences
  const DeltaChain* segments;  ///< of segments
  float* keep;                 ///< as in DeltaStates
  const float* kept;
};

}  // namespace qft::ops
