// Memory that attention needs besides its operands.
#include <algorithm>
#include <utility>

#include "attention_blocked_cpu.h"
#include "attention_paths.h"
#include <ATen/Context.h>

namespace qft::ops {
namespace {

std::int64_t round_up(std::int64_t n, std::int64_t multiple) {
  return (n + multiple - 1) / multiple * multiple;
}

/// Bytes of the operands with one row per token, used if sequences share rows (kSharedIn and so on).
std::int64_t shared_bytes(const blocked::Shape& s, at::ScalarType dtype, bool backward) {
  const auto item = static_cast<std::int64_t>(c10::elementSize(dtype));
  const std::int64_t rows = 2 * (s.heads + s.kv_heads) * s.head_dim * item;  // q, k, v and the result
  return s.tokens * ((backward ? 2 : 1) * rows + s.heads * (dtype == at::kDouble ? 8 : 4));
}

/// One call on an accelerator; computes the bytes that LibTorch's kernels allocate for it.
class DeviceScratch {
 public:
  DeviceScratch(const blocked::Shape& size, const BatchShape& packed, at::ScalarType dtype, AttentionPath path)
      : size_(size),
        path_(path),
        item_(static_cast<std::int64_t>(c10::elementSize(dtype))),
        head_dim_(sdpa::aligned_head_dim(size.head_dim, dtype)),
        longest_(packed.longest > 0 ? packed.longest : std::min(size.tokens, 2 * size.tokens / size.sequences)),
        padded_(packed.padded > 0 ? packed.padded : size.sequences * longest_) {}

  std::int64_t bytes(bool backward) const {
    switch (path_) {
      case AttentionPath::flash:
        return padding(backward) + kStates + (backward ? flash_backward() : queries(item_) + row(size_.tokens));
      case AttentionPath::efficient:
        return padding(backward) + repeated() + kRounding + (backward ? efficient_backward() : efficient_forward());
      default:
        return matrices(backward);
    }
  }

 private:
  static constexpr std::int64_t kStates = 2 * 512;     ///< random-number state, allocated even for dropout 0
  static constexpr std::int64_t kRounding = 16 * 512;  ///< allocators round up to 512 bytes; at most 16 tensors

  std::int64_t queries(std::int64_t item) const { return size_.tokens * size_.heads * head_dim_ * item; }
  std::int64_t keys() const { return size_.tokens * size_.kv_heads * head_dim_ * item_; }
  std::int64_t row(std::int64_t tokens) const { return tokens * size_.heads * 4; }
  bool half() const { return item_ == 2; }
  bool grouped() const { return size_.heads != size_.kv_heads; }

  /// Copies of operands with padded heads.
  std::int64_t padding(bool backward) const {
    return head_dim_ == size_.head_dim ? 0 : (backward ? 3 : 1) * queries(item_) + 2 * keys();
  }

  /// Gradients; fp32 sums of q's gradient with 128 extra rows per sequence; k and v gradients of each query head.
  std::int64_t flash_backward() const {
    const std::int64_t rows = size_.tokens + 128 * size_.sequences, rounded = round_up(head_dim_, head_dim_ <= 128 ? 32 : 64);
    return queries(item_) + 2 * keys() + splits() * rows * size_.heads * rounded * 4 + row(rows) +
           (grouped() ? 2 * queries(item_) : 0);
  }
  /// Copies of the q gradient sums for deterministic results: several multiprocessors have their own copy, which are added one
  /// block at a time.
  std::int64_t splits() const {
    constexpr std::int64_t kMultiprocessors = 160;  // largest chips
    if (!at::globalContext().deterministicAlgorithms()) return 1;
    const std::int64_t blocks = size_.sequences * size_.heads;
    return (kMultiprocessors + blocks - 1) / blocks;
  }

  /// Keys and values repeated per query head.
  std::int64_t repeated() const { return grouped() ? 2 * queries(item_) : 0; }
  /// Tokens of all sequences if each takes as many as the longest one, rounded up to `longest`.
  std::int64_t padded(std::int64_t longest) const { return padded_ + size_.sequences * (longest - longest_); }
  std::int64_t padded_lse() const { return row(padded(sdpa::padded_lse_length(longest_))); }
  /// The result (wide heads do not fit into registers and need fp32 sums too), and the log-sum-exps, padded and packed.
  std::int64_t efficient_forward() const {
    constexpr std::int64_t kIndices = 28;
    return queries(item_) + (half() && head_dim_ > 128 ? queries(4) : 0) + padded_lse() + row(size_.tokens) +
           kIndices * size_.tokens;
  }
  /// Gradients; q's fp32 gradient in padded blocks; earlier, the products that delta sums over rows.
  std::int64_t efficient_backward() const {
    const std::int64_t rows = head_dim_ <= 64 ? 64 : 128, columns = half() && head_dim_ > 64 && head_dim_ <= 128 ? 128 : 64;
    std::int64_t blocks = size_.heads * padded(round_up(longest_, rows)) * round_up(head_dim_, columns);
    const std::int64_t calls = size_.sequences * size_.heads;
    if (half() && head_dim_ > 128)
      blocks += calls * 2 * columns * round_up(head_dim_, rows) *
                std::max<std::int64_t>(1, std::min(round_up(longest_, columns) / columns, 200 / calls));
    const std::int64_t delta = half() ? 0 : queries(4) + 2 * row(size_.tokens);
    return padded_lse() + 3 * queries(item_) + row(size_.tokens) + std::max(delta, 4 * blocks);
  }

  /// Scores of the longest sequence, and its operands in the accumulation dtype.
  std::int64_t matrices(bool backward) const {
    const std::int64_t item = std::max<std::int64_t>(item_, 4), n = longest_;
    return (backward ? 4 : 2) * size_.heads * n * n * item + (backward ? 8 : 4) * n * size_.heads * size_.head_dim * item;
  }

  blocked::Shape size_;
  AttentionPath path_;
  std::int64_t item_, head_dim_;
  std::int64_t longest_, padded_;
};

}  // namespace

namespace sdpa {

std::int64_t aligned_head_dim(std::int64_t head_dim, at::ScalarType dtype) {
  constexpr std::int64_t kBytes = 16;  // bytes that a thread reads at once
  return round_up(head_dim, kBytes / static_cast<std::int64_t>(c10::elementSize(dtype)));
}

std::int64_t padded_lse_length(std::int64_t longest) {
  return round_up(longest, 32);
}

}  // namespace sdpa

AttentionPath planned_attention_path(at::ScalarType dtype, std::int64_t head_dim) {
  constexpr std::int64_t kMaxFlashHeadDim = 256;
  if (dtype == at::kDouble) return AttentionPath::matrices;
  return dtype != at::kFloat && head_dim <= kMaxFlashHeadDim ? AttentionPath::flash : AttentionPath::efficient;
}

std::int64_t attention_scratch_bytes(const BatchShape& sizes, std::int64_t heads, std::int64_t kv_heads, std::int64_t head_dim,
                                     at::ScalarType dtype, bool backward, AttentionPath path) {
  if (sizes.expanded > 0) {
    BatchShape expanded_sizes = sizes;
    expanded_sizes.tokens = std::exchange(expanded_sizes.expanded, 0);
    return attention_scratch_bytes(expanded_sizes, heads, kv_heads, head_dim, dtype, backward, path) +
           shared_bytes({expanded_sizes.tokens, expanded_sizes.num_sequences(), heads, kv_heads, head_dim}, dtype, backward);
  }
  const std::int64_t tokens = sizes.tokens;
  const blocked::Shape shape{tokens, sizes.num_sequences(), heads, kv_heads, head_dim};
  if (path != AttentionPath::cpu) return DeviceScratch(shape, sizes, dtype, path).bytes(backward);
  if (dtype == at::kDouble || !blocked::available(dtype))  // queries and output gradients, also transposed, and sums
    return backward ? tokens * heads * head_dim * (4 * static_cast<std::int64_t>(c10::elementSize(dtype)) + 4) : 0;
  Workspace counted(c10::kMeta);  // records the kernels' requests without allocating
  blocked::request_forward(shape, dtype, counted);
  if (backward) blocked::request_backward(shape, dtype, counted);
  return counted.bytes_in_use();
}

}  // namespace qft::ops
