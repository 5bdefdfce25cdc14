// Tiled attention on the CPU: LibTorch's brgemm multiplies tiles that stay in cache. Every matrix is first copied into a layout
// with fixed strides, padded to whole tiles, so that brgemm compiles only a handful of kernels for any sequence lengths.
#pragma once

#include "qft/ops/attention.h"

#include <algorithm>
#include <cstdint>
#include <vector>

#include "../common/packing_cpu.h"
#include "../linear/brgemm_cpu.h"

namespace qft::ops::blocked {

void attention_forward(const QkvViews& in, const PackedSequences& sequences, const AttentionOptions& options,
                       const at::Tensor& out, const at::Tensor& lse, Workspace& workspace, TileType tile_type);
void attention_backward(const AttentionBackward& tensors, const PackedSequences& sequences, const AttentionOptions& options,
                        Workspace& workspace, TileType tile_type);

/// A problem with `tokens` tokens and at most `sequences` sequences.
struct Shape {
  std::int64_t tokens, sequences, heads, kv_heads, head_dim;
};
/// Make the largest workspace requests that a pass over any such sequences can make.
void request_forward(const Shape& shape, at::ScalarType dtype, Workspace& workspace);
void request_backward(const Shape& shape, at::ScalarType dtype, Workspace& workspace);

constexpr std::int64_t kTile = cpu::kAttentionTile;
constexpr float kLog2E = 1.44269504088896341F;

/// A sequence, and its rows in buffers padded to whole tiles.
struct Sequence {
  std::int64_t first, length, padded_first, padded_length;
};

/// Consecutive rows of a sequence, starting at `first`, that form one task.
struct RowBlock {
  const Sequence* sequence;
  std::int64_t first;
};
/// Splits every sequence into blocks with `rows` rows. `sequences` must outlive the blocks.
inline std::vector<RowBlock> row_blocks(const std::vector<Sequence>& sequences, std::int64_t rows) {
  std::vector<RowBlock> blocks;
  for (const Sequence& s : sequences)
    for (std::int64_t first = 0; first < s.length; first += rows) blocks.push_back({&s, first});
  return blocks;
}

/// Window value that disables the window.
constexpr std::int64_t kWholeSequence = std::int64_t{1} << 40;

/// Problem description for both directions. E is the element type of the products.
template <class E>
struct Problem {
  std::int64_t heads, kv_heads, group, head_dim;
  std::int64_t padded_dim;          ///< head_dim, even for Bf16
  std::vector<Sequence> sequences;  ///< longest first, none empty
  std::int64_t padded_tokens = 0;
  std::int64_t window = kWholeSequence;  ///< tokens that a token attends to, including itself
  std::int64_t min_sequences = 1;        ///< sequences over all threads; with fewer sequences a pass splits each one more

  /// Worst case: maximum padding (each sequence is one token longer than whole tiles) and maximum splitting.
  explicit Problem(const Shape& s)
      : heads(s.heads),
        kv_heads(s.kv_heads),
        group(heads / kv_heads),
        head_dim(s.head_dim),
        padded_dim(sizeof(E) == sizeof(float) ? head_dim : padded(head_dim, 2)),
        sequences(static_cast<std::size_t>(s.sequences)),
        padded_tokens((s.tokens + s.sequences * (kTile - 1)) / kTile * kTile) {}

  Problem(const QkvViews& in, const PackedSequences& packed, const AttentionOptions& options)
      : Problem(Shape{in.q.size(0), 0, in.q.size(1), in.k.size(1), in.q.size(2)}) {
    padded_tokens = 0;
    if (options.window > 0) window = options.window;
    for (std::int64_t s = 0; s < packed.num_sequences(); ++s) {
      const std::int64_t first = packed.cu_seqlens[s], length = packed.cu_seqlens[s + 1] - first;
      if (length == 0) continue;
      sequences.push_back({first, length, padded_tokens, padded(length, kTile)});
      padded_tokens += padded(length, kTile);
    }
    std::stable_sort(sequences.begin(), sequences.end(),
                     [](const Sequence& a, const Sequence& b) { return a.length > b.length; });
    min_sequences = static_cast<std::int64_t>(sequences.size());
  }
};

/// Returns rows [first, first + count) of one head.
template <class T>
cpu::HeadSlice<T> slice(const at::Tensor& rows, std::int64_t head, std::int64_t first, std::int64_t count) {
  const auto* data = static_cast<const T*>(rows.const_data_ptr());
  return {data + first * rows.stride(0) + head * rows.size(2), rows.stride(0), count, rows.size(2)};
}

/// Likewise, as a pointer for writing.
template <class T>
T* place(const at::Tensor& rows, std::int64_t head, std::int64_t first) {
  return static_cast<T*>(rows.data_ptr()) + first * rows.stride(0) + head * rows.size(2);
}

}  // namespace qft::ops::blocked
