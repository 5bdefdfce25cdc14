// Flash attention as in LibTorch for CUDA from compute capability 8.0 on, only for packed sequences.
#include <optional>
#include <tuple>

#include "attention_math.h"
#include "queue_work.h"
#include "torch_kernels.h"
#include <ATen/ATen.h>

namespace qft::sim {
namespace {

using Optional = std::optional<at::Tensor>;
using OptionalSize = std::optional<std::int64_t>;

constexpr std::int64_t kMultiprocessors = 132;  // an H100's: deterministic sums are split over them

std::int64_t round_up(std::int64_t n, std::int64_t multiple) {
  return (n + multiple - 1) / multiple * multiple;
}

void check_rows(const at::Tensor& t, const at::Tensor& q, const char* name, std::int64_t heads) {
  TORCH_CHECK(t.scalar_type() == q.scalar_type(), "query and ", name, " must have the same dtype: ", q.scalar_type(), ", ",
              t.scalar_type());
  TORCH_CHECK(t.stride(-1) == 1, "Input tensor must have contiguous last dimension: ", name);
  TORCH_CHECK(t.dim() == 3 && t.size(1) == heads && t.size(2) == q.size(2), name, " has sizes ", t.sizes(), ", not the sizes of ",
              heads, " heads of ", q.size(2));
}

void check(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor& bounds, bool causal, double dropout) {
  TORCH_CHECK(q.scalar_type() == at::kHalf || q.scalar_type() == at::kBFloat16,
              "FlashAttention only support fp16 and bf16 data type, not ", q.scalar_type());
  check_rows(q, q, "query", q.size(1));
  check_rows(k, q, "key", k.size(1));
  check_rows(v, q, "value", k.size(1));
  TORCH_CHECK(q.size(2) <= 256, "FlashAttention only supports head dimension at most 256, not ", q.size(2));
  TORCH_CHECK(q.size(2) % 8 == 0, "head_size must be a multiple of 8, and is ", q.size(2));
  TORCH_CHECK(q.stride(0) % 8 == 0 && q.stride(1) % 8 == 0 && k.stride(0) % 8 == 0 && k.stride(1) % 8 == 0 &&
                  v.stride(0) % 8 == 0 && v.stride(1) % 8 == 0,
              "sim: flash attention reads 16 bytes at once: strides must be multiples of 8 elements");
  TORCH_CHECK(q.size(1) % k.size(1) == 0, "Number of heads in key/value, ", k.size(1), ", must divide number of heads in query, ",
              q.size(1));
  TORCH_CHECK(bounds.scalar_type() == at::kInt && bounds.is_contiguous() && bounds.numel() > 1,
              "cu_seqlens must be contiguous, int32 and of one sequence at least");
  TORCH_CHECK(causal && dropout == 0.0, "sim: attention is simulated with a causal mask and without dropout alone");
}

/// Returns the tokens that a token attends to at most, including itself; 0: all.
std::int64_t window_of(OptionalSize left, OptionalSize right, std::int64_t longest) {
  TORCH_CHECK(right.value_or(0) <= 0, "sim: a window after a token is not simulated");
  return left && *left >= 0 && *left < longest ? *left + 1 : 0;
}

double scale_of(const at::Tensor& q, std::optional<double> scale) {
  return scale.value_or(1 / std::sqrt(static_cast<double>(q.size(-1))));
}

/// If each sequence has one token, CUDA's call turns the query heads of a group into rows of one sequence, which requires exactly
/// one token per sequence.
void check_swapped_groups(const at::Tensor& q, const at::Tensor& k, const at::Tensor& bounds, std::int64_t longest,
                          std::int64_t window) {
  const std::int64_t sequences = bounds.numel() - 1;
  TORCH_CHECK(longest != 1 || window != 0 || q.size(1) == k.size(1) || q.size(0) == sequences, "shape '[", sequences, ", ",
              k.size(1), ", ", q.size(1) / k.size(1), ", ", q.size(2), "]' is invalid for input of size ", q.numel());
}

std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor> forward(
    const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const Optional& bounds, const Optional& key_bounds,
    std::int64_t longest, std::int64_t /*longest_k*/, double dropout, bool causal, bool debug_mask, std::optional<double> scale,
    OptionalSize left, OptionalSize right, const Optional& used, const Optional& alibi) {
  TORCH_CHECK(bounds && key_bounds && !used && !alibi && !debug_mask, "sim: flash attention is simulated for packed sequences");
  check(q, k, v, *bounds, causal, dropout);
  const std::int64_t window = window_of(left, right, longest);
  check_swapped_groups(q, k, *bounds, longest, window);
  const at::Tensor out = at::empty_like(q), lse = at::empty({q.size(1), q.size(0)}, q.options().dtype(at::kFloat));
  const at::Tensor state = at::empty({2}, q.options().dtype(at::kUInt64)), unused = at::empty({}, state.options());
  queue_work("_flash_attention_forward", {q, k, v, *bounds}, {out, lse},
             [longest, window, scale = scale_of(q, scale)](const Tensors& t) {
               t[5].copy_(attend({t[3], longest, scale, window}, t[0], t[1], t[2], t[4]));
             });
  return {out, lse, state, unused, at::empty({0}, q.options())};
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> backward(const at::Tensor& given_gout, const at::Tensor& q, const at::Tensor& k,
                                                        const at::Tensor& v, const at::Tensor& given_out, const at::Tensor& lse,
                                                        const at::Tensor& bounds, const at::Tensor& /*key_bounds*/,
                                                        std::int64_t longest, std::int64_t /*longest_k*/, double dropout,
                                                        bool causal, const at::Tensor& /*state*/, const at::Tensor& /*unused*/,
                                                        std::optional<double> scale, OptionalSize left, OptionalSize right) {
  const at::Tensor gout = given_gout.contiguous(), out = given_out.contiguous();
  check(q, k, v, bounds, causal, dropout);
  check_rows(out, q, "out", q.size(1));
  check_rows(gout, q, "dout", q.size(1));
  const std::int64_t tokens = q.size(0), heads = q.size(1), d = q.size(2), sequences = bounds.numel() - 1;
  TORCH_CHECK(lse.scalar_type() == at::kFloat && lse.is_contiguous() && lse.sizes() == c10::IntArrayRef({heads, tokens}),
              "sim: softmax_lse must be contiguous fp32 [", heads, ", ", tokens, "], and is ", lse.scalar_type(), " ",
              lse.sizes());
  const at::Tensor gq = at::empty_like(q), gk = at::empty_like(k), gv = at::empty_like(v);
  const auto fp32 = q.options().dtype(at::kFloat);
  const std::int64_t rows = tokens + 128 * sequences, rounded = round_up(d, d <= 128 ? 32 : 64);
  const at::Tensor softmax = at::empty({heads, rows}, fp32);
  const bool split = at::globalContext().deterministicAlgorithms();
  const std::int64_t splits = (kMultiprocessors + sequences * heads - 1) / (sequences * heads);
  const at::Tensor sums = split ? at::zeros({splits, rows, heads, rounded}, fp32) : at::empty({rows, heads, rounded}, fp32);
  at::Tensor gk_expanded = gk, gv_expanded = gv;
  if (k.size(1) != heads) gk_expanded = at::empty({tokens, heads, d}, q.options()), gv_expanded = at::empty_like(gk_expanded);
  queue_work(
      "_flash_attention_backward", {gout, q, k, v, out, lse, bounds}, {gq, gk, gv, softmax, sums, gk_expanded, gv_expanded},
      [longest, window = window_of(left, right, longest), scale = scale_of(q, scale)](const Tensors& t) {
        attend_backward({t[6], longest, scale, window}, t[0], t[1], t[2], t[3], t[4], t[5].to(at::kDouble), {t[7], t[8], t[9]});
      });
  return {gq, gk, gv};
}

}  // namespace

void register_flash_attention(torch::Library& aten) {
  aten.impl("_flash_attention_forward", &forward);
  aten.impl("_flash_attention_backward", &backward);
}

}  // namespace qft::sim
