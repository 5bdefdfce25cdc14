// Memory-efficient attention as in LibTorch for CUDA, only for packed sequences, and the choice between the kinds of attention.
#include <algorithm>
#include <optional>
#include <tuple>

#include "attention_math.h"
#include "memory.h"
#include "queue_work.h"
#include "torch_kernels.h"
#include <ATen/ATen.h>
#include <ATen/SDPBackend.h>

namespace qft::sim {
namespace {

using Optional = std::optional<at::Tensor>;
using OptionalSize = std::optional<std::int64_t>;

constexpr std::int64_t kCausalFromTopLeft = 1, kLseAlignment = 32;
constexpr double kNoToken = std::numeric_limits<double>::infinity();

std::int64_t round_up(std::int64_t n, std::int64_t multiple) {
  return (n + multiple - 1) / multiple * multiple;
}

bool is_half(const at::Tensor& t) {
  return t.scalar_type() == at::kHalf || t.scalar_type() == at::kBFloat16;
}

void check(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor& bounds, std::int64_t longest,
           double dropout, std::int64_t mask) {
  TORCH_CHECK(is_half(q) || q.scalar_type() == at::kFloat, "memory-efficient attention of ", q.scalar_type());
  for (const at::Tensor& t : {q, k, v}) {
    TORCH_CHECK(t.dim() == 4 && t.size(0) == 1, "cu_seqlen only supports batch_size=1, not sizes ", t.sizes());
    TORCH_CHECK(t.scalar_type() == q.scalar_type() && t.size(1) == q.size(1) && t.size(3) == q.size(3),
                "query, key and value are not alike: ", q.sizes(), ", ", t.sizes());
    TORCH_CHECK(t.size(2) == q.size(2), "memory-efficient attention knows no groups: ", q.size(2), " query heads, ", t.size(2),
                " key heads");
    TORCH_CHECK(t.stride(3) == 1, "the last dimension must be contiguous");
    const std::int64_t alignment = 16 / static_cast<std::int64_t>(t.itemsize());
    TORCH_CHECK(t.stride(2) % alignment == 0, "cutlass: no kernel found to launch! (heads ", t.stride(2),
                " elements apart, which is not a multiple of ", alignment, ")");
    TORCH_CHECK(t.stride(1) % alignment == 0 && t.size(3) % alignment == 0 && t.storage_offset() % alignment == 0,
                "query, key or value is not correctly aligned: heads of ", t.size(3), ", rows ", t.stride(1), " apart");
  }
  TORCH_CHECK(bounds.scalar_type() == at::kInt && bounds.dim() == 1 && bounds.is_contiguous(),
              "cu_seqlens must be int32 and contiguous");
  TORCH_CHECK(longest > 0 && longest <= q.size(1), "Invalid max_seqlen: ", longest, " of ", q.size(1), " tokens");
  TORCH_CHECK(mask == kCausalFromTopLeft && dropout == 0.0,
              "sim: attention is simulated with a causal mask and without dropout alone");
}

double scale_of(const at::Tensor& q, std::optional<double> scale) {
  return scale.value_or(1 / std::sqrt(static_cast<double>(q.size(-1))));
}

/// Calls `visit` with each sequence's part of the log-sum-exps, packed [heads, n] and padded [heads, length].
template <class F>
void each_lse(const at::Tensor& bounds, const at::Tensor& packed, const at::Tensor& padded, const F& visit) {
  const std::int32_t* const at = bounds.const_data_ptr<std::int32_t>();
  for (std::int64_t s = 0; s < padded.size(0); ++s) visit(packed.narrow(1, at[s], at[s + 1] - at[s]), padded[s]);
}

std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor, c10::SymInt, c10::SymInt> forward(
    const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const Optional& bias, const Optional& bounds,
    const Optional& /*key_bounds*/, std::optional<c10::SymInt> given_longest, std::optional<c10::SymInt> longest_k,
    double dropout, std::int64_t mask, bool with_lse, std::optional<double> scale, const Optional& used, OptionalSize window) {
  TORCH_CHECK(bounds && given_longest && longest_k && with_lse && !bias && !used,
              "sim: memory-efficient attention is simulated for packed sequences");
  const std::int64_t longest = given_longest->expect_int();
  check(q, k, v, *bounds, longest, dropout, mask);
  const auto fp32 = q.options().dtype(at::kFloat);
  const at::Tensor out = at::empty(q.sizes(), q.options());
  const at::Tensor lse = at::empty({bounds->numel() - 1, q.size(2), round_up(longest, kLseAlignment)}, fp32);
  // Sums of wide heads do not fit into registers and are in memory.
  const at::Tensor sums = is_half(q) && q.size(3) > 128 ? at::empty(q.sizes(), fp32) : at::Tensor();
  queue_work("_efficient_attention_forward", {q, k, v, *bounds}, {out, lse, sums},
             [longest, window = window.value_or(0), scale = scale_of(q, scale)](const Tensors& t) {
               const at::Tensor packed = attend({t[3], longest, scale, window}, t[0][0], t[1][0], t[2][0], t[4][0]);
               each_lse(t[3], packed, t[5], [](const at::Tensor& from, const at::Tensor& to) {
                 to.narrow(1, 0, round_up(from.size(1), kLseAlignment)).fill_(kNoToken);  // the rest stays as it was
                 to.narrow(1, 0, from.size(1)).copy_(from);
               });
             });
  const at::Tensor seed = at::empty({}, at::kLong);
  return {out, lse, seed, at::empty_like(seed), longest, *longest_k};
}

/// Returns the bytes of the backward kernel's sums, without its outputs.
std::int64_t workspace_bytes(const at::Tensor& q, std::int64_t sequences, std::int64_t longest) {
  const std::int64_t heads = q.size(2), d = q.size(3), rows = d <= 64 ? 64 : 128,
                     columns = is_half(q) && d > 64 && d <= 128 ? 128 : 64;
  const std::int64_t blocks = (longest + rows - 1) / rows * ((d + columns - 1) / columns);
  std::int64_t floats = blocks * (4 + rows * columns);
  if (is_half(q) && d > 128) {
    const std::int64_t keys = (longest + columns - 1) / columns,
                       splits = std::max<std::int64_t>(1, std::min(keys, 200 / (sequences * heads)));
    floats += 2 * splits * columns * round_up(d, rows);
  }
  return sequences * heads * round_up(floats, 4) * 4;
}

std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor> backward(
    const at::Tensor& given_gout, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const Optional& bias,
    const at::Tensor& out, const Optional& bounds, const Optional& /*key_bounds*/, std::int64_t longest,
    std::int64_t /*longest_k*/, const at::Tensor& lse, double dropout, const at::Tensor& /*seed*/, const at::Tensor& /*offset*/,
    std::int64_t mask, bool bias_grad, std::optional<double> scale, OptionalSize /*splits*/, OptionalSize window,
    bool shared_storage) {
  TORCH_CHECK(bounds && !bias && !bias_grad && !shared_storage,
              "sim: memory-efficient attention is simulated for packed sequences");
  check(q, k, v, *bounds, longest, dropout, mask);
  const at::Tensor gout = given_gout.contiguous();
  const std::int64_t sequences = bounds->numel() - 1, heads = q.size(2);
  TORCH_CHECK(gout.sizes() == q.sizes() && out.sizes() == q.sizes() && out.is_contiguous(),
              "sim: out and its gradient: ", out.sizes(), ", ", gout.sizes());
  TORCH_CHECK(lse.scalar_type() == at::kFloat && lse.dim() == 3 && lse.size(0) == sequences && lse.size(1) == heads &&
                  lse.size(2) >= longest && lse.stride(2) == 1,
              "logsumexp of ", lse.scalar_type(), " ", lse.sizes(), " for ", sequences, " sequences of up to ", longest);
  TORCH_CHECK(lse.stride(0) % 8 == 0 && lse.stride(1) % 8 == 0, "LSE is not correctly aligned: strides ", lse.strides());
  const at::Tensor gq = at::empty(q.sizes(), q.options()), gk = at::empty(k.sizes(), k.options()),
                   gv = at::empty(v.sizes(), v.options());
  const at::Tensor delta = is_half(q) ? at::empty({1, heads, q.size(1)}, lse.options())
                                      : (gout.to(at::kFloat) * out.to(at::kFloat)).sum(-1).transpose(-2, -1).contiguous();
  const at::Tensor workspace = at::empty({workspace_bytes(q, sequences, longest)}, q.options().dtype(at::kByte));
  queue_work("_efficient_attention_backward", {gout, q, k, v, out, lse, *bounds}, {gq, gk, gv, delta, workspace},
             [longest, window = window.value_or(0), scale = scale_of(q, scale)](const Tensors& t) {
               const at::Tensor packed = at::full({t[1].size(2), t[1].size(1)}, kNoToken, at::kDouble);
               each_lse(t[6], packed, t[5], [&](const at::Tensor& to, const at::Tensor& from) {
                 const at::Tensor padding = from.slice(1, to.size(1), round_up(to.size(1), kLseAlignment));
                 TORCH_CHECK(padding.isposinf().all().item<bool>(), "logsumexp must be infinite after a sequence's last token");
                 to.copy_(from.narrow(1, 0, to.size(1)));
               });
               attend_backward({t[6], longest, scale, window}, t[0][0], t[1][0], t[2][0], t[3][0], t[4][0], packed,
                               {t[7][0], t[8][0], t[9][0]});
             });
  return {gq, gk, gv, at::Tensor()};
}

/// Chooses as CUDA does: flash attention for bf16 from compute capability 8.0 on. Attention without a causal mask is for
/// decoding, which is not simulated.
std::int64_t choose(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const Optional& mask, double /*dropout*/,
                    bool causal, std::optional<double> /*scale*/, bool /*groups*/) {
  const auto answer = [](at::SDPBackend backend) { return static_cast<std::int64_t>(backend); };
  const bool alike = q.size(-1) == k.size(-1) && q.size(-1) == v.size(-1);
  if (!causal || mask || !alike) return answer(at::SDPBackend::math);
  if (is_half(q) && q.size(-1) <= 256 && setting("QFT_SIM_BF16", 1) != 0) return answer(at::SDPBackend::flash_attention);
  const std::int64_t alignment = is_half(q) ? 8 : 4;
  return answer((is_half(q) || q.scalar_type() == at::kFloat) && q.size(-1) % alignment == 0 ? at::SDPBackend::efficient_attention
                                                                                             : at::SDPBackend::math);
}

}  // namespace

void register_efficient_attention(torch::Library& aten) {
  aten.impl("_fused_sdp_choice", &choose);
  aten.impl("_efficient_attention_forward", &forward);
  aten.impl("_efficient_attention_backward", &backward);
}

}  // namespace qft::sim
