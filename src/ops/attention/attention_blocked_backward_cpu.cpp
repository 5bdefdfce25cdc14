// A task takes every n-th key tile of one head and walks the query blocks that see this tile. The task keeps the gradients of its
// keys and values to itself and adds the query gradients to its own sum. Tasks share nothing, so the result does not depend on
// the assignment of tasks to threads.
#include <algorithm>
#include <cstring>

#include "attention_blocked_cpu.h"
#include "softmax_cpu.h"

namespace qft::ops::blocked {
namespace {

/// Queries per block against one key tile.
constexpr std::int64_t kQueryBlock = 256;
/// Tasks per thread; enough to balance the load.
constexpr std::int64_t kSplitsPerThread = 3;
constexpr std::int64_t kMaxSplits = 8;
/// Bound on the query gradient sums; each split has its own sum.
constexpr std::int64_t kMaxSumElements = std::int64_t{1} << 26;
/// Log-sum-exp of padded rows, in place of infinity: their probabilities become zero.
constexpr float kPaddedRowLse = 1e30F;

/// Elements of the query gradient sums, with `each` elements per split. Uses enough splits to balance the load, within
/// kMaxSumElements.
template <class E>
std::int64_t sum_elements(const Problem<E>& p, std::int64_t each) {
  const std::int64_t threads = at::get_num_threads();
  if (threads == 1) return each;
  const std::int64_t problems = std::max<std::int64_t>(p.min_sequences * p.kv_heads, 1);
  const std::int64_t wanted = std::min((kSplitsPerThread * threads + problems - 1) / problems, kMaxSplits);
  return std::min(wanted * each, std::max(each, kMaxSumElements));
}

template <class E>
struct BackwardBuffers {
  std::int64_t splits;  ///< tasks that share the key tiles of one sequence and head
  // per query head, padded_tokens rows:
  E *queries, *gout;                        ///< [rows][padded_dim]
  E *queries_transposed, *gout_transposed;  ///< [head_dim][width] for each block of kQueryBlock rows
  float *lse, *delta;                       ///< [rows]
  float* gqueries;                          ///< [splits][heads][rows][head_dim], plus unused elements of sum_elements()
  // per thread:
  E *keys_transposed, *values_transposed;  ///< packed [padded_dim, kTile]
  E* keys;                                 ///< packed [kTile, head_dim]
  float *gkeys, *gvalues;                  ///< transposed: [head_dim][kTile]
  float *scores, *gprobabilities;          ///< [kQueryBlock][kTile]
  E *probabilities, *gscores, *gscores_packed;

  BackwardBuffers(const Problem<E>& p, Workspace& workspace) {
    const std::int64_t threads = at::get_num_threads(), rows = p.heads * p.padded_tokens;
    const std::int64_t sum = rows * p.head_dim, sums = sum_elements(p, sum);
    splits = sum == 0 ? 1 : sums / sum;
    queries = scratch<E>(workspace, "op.attention_queries", rows * p.padded_dim);
    gout = scratch<E>(workspace, "op.attention_gout", rows * p.padded_dim);
    queries_transposed = scratch<E>(workspace, "op.attention_queries_t", rows * p.head_dim);
    gout_transposed = scratch<E>(workspace, "op.attention_gout_t", rows * p.head_dim);
    lse = scratch<float>(workspace, "op.attention_lse", rows);
    delta = scratch<float>(workspace, "op.attention_delta", rows);
    gqueries = scratch<float>(workspace, "op.attention_gqueries", sums);
    keys_transposed = scratch<E>(workspace, "op.attention_key_t", threads * kTile * p.padded_dim);
    values_transposed = scratch<E>(workspace, "op.attention_value_t", threads * kTile * p.padded_dim);
    keys = scratch<E>(workspace, "op.attention_key", threads * kTile * p.head_dim);
    gkeys = scratch<float>(workspace, "op.attention_gkey", threads * kTile * p.head_dim);
    gvalues = scratch<float>(workspace, "op.attention_gvalue", threads * kTile * p.head_dim);
    const std::int64_t tile = threads * kQueryBlock * kTile;
    scores = scratch<float>(workspace, "op.attention_scores", tile);
    gprobabilities = scratch<float>(workspace, "op.attention_gprobs", tile);
    probabilities = scratch<E>(workspace, "op.attention_probs", tile);
    gscores = scratch<E>(workspace, "op.attention_gscores", tile);
    gscores_packed = sizeof(E) == sizeof(float) ? gscores : scratch<E>(workspace, "op.attention_gscores_p", tile);
  }

  /// Returns the buffers of one thread.
  BackwardBuffers of_thread(const Problem<E>& p, std::int64_t thread) const {
    BackwardBuffers b = *this;
    b.keys_transposed += thread * kTile * p.padded_dim;
    b.values_transposed += thread * kTile * p.padded_dim;
    b.keys += thread * kTile * p.head_dim;
    b.gkeys += thread * kTile * p.head_dim;
    b.gvalues += thread * kTile * p.head_dim;
    for (float** tile : {&b.scores, &b.gprobabilities}) *tile += thread * kQueryBlock * kTile;
    for (E** tile : {&b.probabilities, &b.gscores, &b.gscores_packed}) *tile += thread * kQueryBlock * kTile;
    return b;
  }
};

/// Arguments of a backward pass.
struct Arguments {
  const at::Tensor &gout, &out, &lse;  ///< gout and out as [T, heads, head_dim]
  const QkvViews &in, &grads;
  float scale;
};

/// Copies one query block and its output gradients.
template <class T, class E>
void prepare_block(const Problem<E>& p, const BackwardBuffers<E>& b, const Arguments& a, const Sequence& s, std::int64_t q0,
                   std::int64_t head) {
  const auto kernels = cpu::packing_kernels<T, E>();
  const std::int64_t rows = std::min(kQueryBlock, s.length - q0), width = padded(rows, kTile);
  const std::int64_t at = head * p.padded_tokens + s.padded_first + q0, token = s.first + q0;
  const auto queries = slice<T>(a.in.q, head, token, rows), gout = slice<T>(a.gout, head, token, rows);
  kernels.copy(queries, width, p.padded_dim, b.queries + at * p.padded_dim);
  kernels.copy(gout, width, p.padded_dim, b.gout + at * p.padded_dim);
  kernels.transpose(queries, width, b.queries_transposed + at * p.head_dim);
  kernels.transpose(gout, width, b.gout_transposed + at * p.head_dim);
  kernels.row_dots(slice<T>(a.out, head, token, rows), gout, b.delta + at);
  std::fill(b.delta + at + rows, b.delta + at + width, 0.0F);
  const float* lse = a.lse.const_data_ptr<float>() + head * a.lse.size(1) + token;
  for (std::int64_t r = 0; r < width; ++r) b.lse[at + r] = r < rows ? lse[r] * kLog2E : kPaddedRowLse;
}

/// Gradients for one head, between the key tile at k0 and the queries [q0, q0 + rows).
template <class E>
void block_gradients(const Problem<E>& p, const BackwardBuffers<E>& b, const Sequence& s, std::int64_t k0, std::int64_t q0,
                     std::int64_t rows, std::int64_t head, std::int64_t split, float scale) {
  const std::int64_t dim = p.head_dim, at = head * p.padded_tokens + s.padded_first + q0;
  product(rows, kTile, p.padded_dim, b.queries + at * p.padded_dim, p.padded_dim, b.keys_transposed, kTile, b.scores, kTile,
          false);
  product(rows, kTile, p.padded_dim, b.gout + at * p.padded_dim, p.padded_dim, b.values_transposed, kTile, b.gprobabilities,
          kTile, false);
  cpu::softmax_kernels<E, E>().gradient({b.scores, b.gprobabilities, rows, q0 == k0, q0 - k0 + 1 - p.window, b.lse + at,
                                         b.delta + at, scale, b.probabilities, b.gscores, b.gscores_packed});
  // The transposed copies are laid out in query blocks; q0 may lie inside one.
  const std::int64_t inside = q0 % kQueryBlock, start = q0 - inside;
  const std::int64_t width = std::min(kQueryBlock, s.padded_length - start), t = (at - inside) * dim + inside;
  product(dim, kTile, rows, b.gout_transposed + t, width, b.probabilities, kTile, b.gvalues, kTile, true);
  product(dim, kTile, rows, b.queries_transposed + t, width, b.gscores_packed, kTile, b.gkeys, kTile, true);
  product(rows, dim, kTile, b.gscores, kTile, b.keys, dim, b.gqueries + (split * p.heads * p.padded_tokens + at) * dim, dim,
          true);
}

/// Handles every splits-th key tile of one kv head, starting with tile `split`.
template <class T, class E>
void key_gradients(const Problem<E>& p, const BackwardBuffers<E>& b, const Arguments& a, const Sequence& s, std::int64_t kv_head,
                   std::int64_t split) {
  const auto kernels = cpu::packing_kernels<T, E>();
  const std::int64_t dim = p.head_dim, first_head = kv_head * p.group;
  for (std::int64_t head = first_head; head < first_head + p.group; ++head) {
    const std::int64_t at = split * p.heads * p.padded_tokens + head * p.padded_tokens + s.padded_first;
    std::memset(b.gqueries + at * dim, 0, static_cast<std::size_t>(s.padded_length * dim) * sizeof(float));
  }
  for (std::int64_t k0 = split * kTile; k0 < s.length; k0 += b.splits * kTile) {
    const std::int64_t count = std::min(kTile, s.length - k0), token = s.first + k0;
    const auto keys = slice<T>(a.in.k, kv_head, token, count), values = slice<T>(a.in.v, kv_head, token, count);
    kernels.pack_transposed(keys, p.padded_dim, kTile, b.keys_transposed);
    kernels.pack_transposed(values, p.padded_dim, kTile, b.values_transposed);
    kernels.pack(keys, kTile, b.keys);
    std::memset(b.gkeys, 0, static_cast<std::size_t>(kTile * dim) * sizeof(float));
    std::memset(b.gvalues, 0, static_cast<std::size_t>(kTile * dim) * sizeof(float));
    // No query from here on sees any of these keys.
    const std::int64_t seen_until = std::min(s.padded_length, padded(k0 + kTile - 1 + p.window, kTile));
    for (std::int64_t head = first_head; head < first_head + p.group; ++head) {
      for (std::int64_t q0 = k0; q0 < seen_until;) {
        const std::int64_t end = std::min((q0 / kQueryBlock + 1) * kQueryBlock, seen_until);
        block_gradients(p, b, s, k0, q0, end - q0, head, split, a.scale);
        q0 = end;
      }
    }
    kernels.store_transposed(b.gkeys, count, dim, place<T>(a.grads.k, kv_head, token), a.grads.k.stride(0));
    kernels.store_transposed(b.gvalues, count, dim, place<T>(a.grads.v, kv_head, token), a.grads.v.stride(0));
  }
}

template <class T, class E>
void backward(const Arguments& a, const PackedSequences& packed, const AttentionOptions& options, Workspace& workspace) {
  const Problem<E> p(a.in, packed, options);
  const BackwardBuffers<E> b(p, workspace);
  const std::vector<RowBlock> blocks = row_blocks(p.sequences, kQueryBlock);
  const auto count = static_cast<std::int64_t>(blocks.size());
  for_tasks(count * p.heads, [&](std::int64_t task, std::int64_t) {
    const auto& [s, q0] = blocks[static_cast<std::size_t>(task % count)];
    prepare_block<T>(p, b, a, *s, q0, task / count);
  });
  const std::int64_t per_sequence = p.kv_heads * b.splits;
  for_tasks(static_cast<std::int64_t>(p.sequences.size()) * per_sequence, [&](std::int64_t task, std::int64_t thread) {
    const std::int64_t rest = task % per_sequence;
    key_gradients<T>(p, b.of_thread(p, thread), a, p.sequences[static_cast<std::size_t>(task / per_sequence)], rest / b.splits,
                     rest % b.splits);
  });
  const auto kernels = cpu::packing_kernels<T, E>();
  const std::int64_t part_stride = p.heads * p.padded_tokens * p.head_dim;
  for_tasks(count * p.heads, [&](std::int64_t task, std::int64_t) {
    const auto& [s, q0] = blocks[static_cast<std::size_t>(task % count)];
    const std::int64_t head = task / count, at = head * p.padded_tokens + s->padded_first + q0;
    kernels.store_sum(b.gqueries + at * p.head_dim, b.splits, part_stride, std::min(kQueryBlock, s->length - q0), p.head_dim,
                      place<T>(a.grads.q, head, s->first + q0), a.grads.q.stride(0));
  });
}

}  // namespace

void request_backward(const Shape& shape, at::ScalarType dtype, Workspace& workspace) {
  with_elements(dtype, preferred_tile_type(dtype), [&]<class T, class E>() { BackwardBuffers<E>(Problem<E>(shape), workspace); });
}

void attention_backward(const AttentionBackward& t, const PackedSequences& sequences, const AttentionOptions& options,
                        Workspace& workspace, TileType tile_type) {
  const at::Tensor gout_heads = t.gout.view(t.in.q.sizes()), out_heads = t.out.view(t.in.q.sizes());
  const Arguments arguments{gout_heads, out_heads, t.lse, t.in, t.grads, static_cast<float>(options.scale)};
  with_elements(t.in.q.scalar_type(), tile_type,
                [&]<class T, class E>() { backward<T, E>(arguments, sequences, options, workspace); });
}

}  // namespace qft::ops::blocked
