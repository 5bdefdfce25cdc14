#include "attention_blocked_cpu.h"

#include "softmax_cpu.h"

namespace qft::ops::blocked {
namespace {

/// Keys per score block of a query tile.
constexpr std::int64_t kKeyBlock = 512;

/// Rows that a packed matrix interleaves.
template <class E>
constexpr std::int64_t kInterleaved = sizeof(E) == sizeof(float) ? 1 : 2;

template <class E>
struct ForwardBuffers {
  E* keys;    ///< packed [padded_dim, width] for each block of kKeyBlock keys; kv_heads times padded_tokens
  E* values;  ///< packed [padded_tokens, head_dim] of each kv head
  // per thread:
  E *queries, *probabilities;
  float *scores, *out, *statistics;
};

template <class E>
ForwardBuffers<E> forward_buffers(const Problem<E>& p, Workspace& workspace) {
  const std::int64_t threads = at::get_num_threads();
  ForwardBuffers<E> b{};
  b.keys = scratch<E>(workspace, "op.attention_keys", p.kv_heads * p.padded_tokens * p.padded_dim);
  b.values = scratch<E>(workspace, "op.attention_values", p.kv_heads * p.padded_tokens * p.head_dim);
  b.queries = scratch<E>(workspace, "op.attention_query_tiles", threads * kTile * p.padded_dim);
  b.scores = scratch<float>(workspace, "op.attention_scores", threads * kTile * kKeyBlock);
  // In fp32 the probabilities overwrite the scores.
  b.probabilities = scratch<E>(workspace, sizeof(E) == sizeof(float) ? "op.attention_scores" : "op.attention_probs",
                               threads * kTile * kKeyBlock);
  b.out = scratch<float>(workspace, "op.attention_out", threads * kTile * p.head_dim);
  b.statistics = scratch<float>(workspace, "op.attention_statistics", threads * 2 * kTile);
  return b;
}

/// Packs keys and values; a task is one key block of one head.
template <class T, class E>
void pack_keys_and_values(const Problem<E>& p, const ForwardBuffers<E>& b, const QkvViews& in) {
  const std::vector<RowBlock> blocks = row_blocks(p.sequences, kKeyBlock);
  const auto kernels = cpu::packing_kernels<T, E>();
  const auto count = static_cast<std::int64_t>(blocks.size());
  for_tasks(count * p.kv_heads, [&](std::int64_t task, std::int64_t) {
    const auto& [s, k] = blocks[static_cast<std::size_t>(task % count)];
    const std::int64_t head = task / count, rows = std::min(kKeyBlock, s->length - k), width = padded(rows, kTile);
    const std::int64_t at = head * p.padded_tokens + s->padded_first + k;
    kernels.pack_transposed(slice<T>(in.k, head, s->first + k, rows), p.padded_dim, width, b.keys + at * p.padded_dim);
    kernels.pack(slice<T>(in.v, head, s->first + k, rows), width, b.values + at * p.head_dim);
  });
}

/// Attends from one query tile of one head to its visible keys, one key block at a time, starting at the first visible tile.
template <class T, class E>
void attend(const Problem<E>& p, const ForwardBuffers<E>& b, const QkvViews& in, const Sequence& s, std::int64_t q0,
            std::int64_t head, float scale, const at::Tensor& out, const at::Tensor& lse, std::int64_t thread) {
  const auto packing = cpu::packing_kernels<T, E>();
  const auto softmax = cpu::softmax_kernels<T, E>();
  const std::int64_t rows = std::min(kTile, s.length - q0), dim = p.head_dim;
  E* queries = b.queries + thread * kTile * p.padded_dim;
  packing.copy(slice<T>(in.q, head, s.first + q0, rows), kTile, p.padded_dim, queries);
  float* statistics = b.statistics + thread * 2 * kTile;
  cpu::SoftmaxTile<E> tile{b.scores + thread * kTile * kKeyBlock,
                           b.probabilities + thread * kTile * kKeyBlock,
                           kKeyBlock,
                           0,
                           0,
                           0,
                           scale * kLog2E,
                           statistics,
                           statistics + kTile,
                           b.out + thread * kTile * dim,
                           dim,
                           true};
  const std::int64_t kv_offset = head / p.group * p.padded_tokens + s.padded_first;
  const std::int64_t first_key = std::max<std::int64_t>(0, q0 + 1 - p.window) / kTile * kTile;
  for (std::int64_t k0 = first_key, end = 0; k0 < q0 + kTile; k0 = end) {
    const std::int64_t inside = k0 % kKeyBlock, start = k0 - inside;
    end = std::min(start + kKeyBlock, q0 + kTile);
    tile.columns = end - k0;
    tile.visible = q0 + 1 - k0;
    tile.hidden = tile.visible - p.window;
    tile.first = k0 == first_key;
    const std::int64_t width = std::min(kKeyBlock, s.padded_length - start);
    product(kTile, tile.columns, p.padded_dim, queries, p.padded_dim,
            b.keys + (kv_offset + start) * p.padded_dim + inside * kInterleaved<E>, width, tile.scores, kKeyBlock, false);
    softmax.step(tile);
    product(kTile, dim, tile.columns, tile.probabilities, kKeyBlock, b.values + (kv_offset + k0) * dim, dim, tile.out, dim,
            !tile.first);
  }
  const std::int64_t token = s.first + q0, columns = p.heads * dim;
  softmax.finish(tile, rows, static_cast<T*>(out.data_ptr()) + token * columns + head * dim, columns,
                 lse.data_ptr<float>() + head * lse.size(1) + token);
}

template <class T, class E>
void forward(const QkvViews& in, const PackedSequences& packed, const AttentionOptions& options, const at::Tensor& out,
             const at::Tensor& lse, Workspace& workspace) {
  const Problem<E> p(in, packed, options);
  const ForwardBuffers<E> b = forward_buffers(p, workspace);
  pack_keys_and_values<T>(p, b, in);
  struct Tile {
    const Sequence* sequence;
    std::int64_t first;
  };
  std::vector<Tile> tiles;  // long sequences first, so that threads finish together
  for (const Sequence& s : p.sequences)
    for (std::int64_t q0 = s.padded_length - kTile; q0 >= 0; q0 -= kTile) tiles.push_back({&s, q0});
  for_tasks(static_cast<std::int64_t>(tiles.size()) * p.heads, [&](std::int64_t task, std::int64_t thread) {
    const auto& [s, q0] = tiles[static_cast<std::size_t>(task / p.heads)];
    attend<T>(p, b, in, *s, q0, task % p.heads, static_cast<float>(options.scale), out, lse, thread);
  });
}

}  // namespace

void request_forward(const Shape& shape, at::ScalarType dtype, Workspace& workspace) {
  with_elements(dtype, preferred_tile_type(dtype), [&]<class T, class E>() { forward_buffers(Problem<E>(shape), workspace); });
}

void attention_forward(const QkvViews& in, const PackedSequences& sequences, const AttentionOptions& options,
                       const at::Tensor& out, const at::Tensor& lse, Workspace& workspace, TileType tile_type) {
  with_elements(in.q.scalar_type(), tile_type,
                [&]<class T, class E>() { forward<T, E>(in, sequences, options, out, lse, workspace); });
}

}  // namespace qft::ops::blocked
