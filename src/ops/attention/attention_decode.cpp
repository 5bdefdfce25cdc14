// Attention of new tokens over cached keys and values.
#include "qft/core/error.h"
#include "qft/ops/attention.h"

#include <algorithm>
#include <optional>

#include "../common/tensors_cpu.h"
#include "attention_paths.h"
#include <ATen/ops/scaled_dot_product_attention.h>

namespace qft::ops {
namespace {

/// Returns the first key that any of the sequence's new tokens sees.
std::int64_t first_key(const CachedSequence& s, const AttentionOptions& options) {
  return options.window > 0 ? std::max<std::int64_t>(0, s.tokens - s.new_tokens + 1 - options.window) : 0;
}

/// Handles heads [begin, end), counted over all sequences one after another.
template <class T>
void attend_heads(const std::vector<cpu::DecodeAttention<T>>& sequences, std::int64_t heads, std::int64_t begin,
                  std::int64_t end) {
  const auto kernels = cpu::decode_kernels<T>();
  while (begin < end) {
    const std::int64_t s = begin / heads, last = std::min(end, (s + 1) * heads);
    kernels.heads(sequences[static_cast<std::size_t>(s)], begin - s * heads, last - s * heads);
    begin = last;
  }
}

/// Handles one new token per sequence; returns false if there is no kernel.
bool by_kernel(const at::Tensor& q, std::span<const CachedSequence> sequences, const AttentionOptions& options,
               const at::Tensor& out, Workspace& workspace) {
  if (std::ranges::any_of(sequences, [](const CachedSequence& s) { return s.new_tokens != 1; })) return false;
  return cpu::with_kernel_type(q, [&]<class T>() {
    const std::int64_t heads = q.size(1), head_dim = q.size(2);
    std::int64_t tokens = 0;
    for (const CachedSequence& s : sequences) tokens += s.tokens - first_key(s, options);
    float* scores = workspace.get("op.decode_scores", {heads, tokens}, at::kFloat).template data_ptr<float>();
    std::vector<cpu::DecodeAttention<T>> args;
    for (const CachedSequence& s : sequences) {
      const auto row = static_cast<std::int64_t>(args.size());
      const std::int64_t first = first_key(s, options), seen = s.tokens - first;
      args.push_back({const_data<T>(q) + row * q.stride(0), const_data<T>(s.keys) + first * head_dim,
                      const_data<T>(s.values) + first * head_dim, data<T>(out) + row * out.stride(0), scores, s.keys.stride(0),
                      heads / s.keys.size(0), head_dim, seen, static_cast<float>(options.scale)});
      scores += heads * seen;
    }
    const std::int64_t all = heads * static_cast<std::int64_t>(args.size());
    cpu::for_rows(all, 2 * tokens * heads * head_dim / all,
                  [&](std::int64_t begin, std::int64_t end) { attend_heads(args, heads, begin, end); });
  });
}

void by_sdpa(const at::Tensor& q, const CachedSequence& s, const AttentionOptions& options, const at::Tensor& out) {
  const auto queries = q.transpose(0, 1).unsqueeze(0);  // [1, heads, T, head_dim]
  std::optional<at::Tensor> mask;
  const std::int64_t first = first_key(s, options), keys = s.tokens - first;
  if (q.size(0) > 1) mask = masked_keys(q.size(0), keys, options.window, q.device()).logical_not_();
  const auto seen = [&](const at::Tensor& cache) { return cache.narrow(1, first, keys).unsqueeze(0); };
  const auto result = at::scaled_dot_product_attention(queries, seen(s.keys), seen(s.values), mask, 0.0,
                                                       /*is_causal=*/false, options.scale, /*enable_gqa=*/true);
  out.copy_(result.squeeze(0).transpose(0, 1).reshape(out.sizes()));
}

void check(const at::Tensor& q, std::span<const CachedSequence> sequences) {
  QFT_ASSERT(q.stride(2) == 1 && q.stride(1) == q.size(2), "q must consist of rows of adjacent heads");
  std::int64_t rows = 0;
  for (const CachedSequence& s : sequences) {
    QFT_ASSERT(s.keys.stride(1) == q.size(2) && s.keys.strides() == s.values.strides() && s.keys.size(1) >= s.tokens &&
                   s.tokens >= s.new_tokens,
               "keys and values differ in strides, or hold fewer than {} tokens", s.tokens);
    rows += s.new_tokens;
  }
  QFT_ASSERT(rows == q.size(0), "{} new tokens, but {} rows", rows, q.size(0));
}

}  // namespace

void attention_decode(const at::Tensor& q, std::span<const CachedSequence> sequences, const AttentionOptions& options,
                      const at::Tensor& out, Workspace& workspace) {
  check(q, sequences);
  if (by_kernel(q, sequences, options, out, workspace)) return;
  std::int64_t row = 0;
  for (const CachedSequence& s : sequences) {
    by_sdpa(q.narrow(0, row, s.new_tokens), s, options, out.narrow(0, row, s.new_tokens));
    row += s.new_tokens;
  }
}

}  // namespace qft::ops
