// Attention of new tokens over a cache of keys and values.
#include "qft/core/error.h"
#include "qft/model/ops/attention.h"

#include "cpu/tensors.h"
#include <ATen/ops/arange.h>
#include <ATen/ops/scaled_dot_product_attention.h>

namespace qft::model::ops {
namespace {

bool by_kernel(const at::Tensor& q, const at::Tensor& keys, const at::Tensor& values, double scale, const at::Tensor& out,
               Workspace& workspace) {
  if (q.size(0) != 1) return false;
  return cpu::with_kernel_type(q, [&]<class T>() {
    const std::int64_t heads = q.size(1), head_dim = q.size(2), tokens = keys.size(1);
    const at::Tensor scores = workspace.get("op.decode_scores", {heads, tokens}, at::kFloat);
    const cpu::DecodeAttention<T> args{cpu::const_data<T>(q),
                                       cpu::const_data<T>(keys),
                                       cpu::const_data<T>(values),
                                       cpu::data<T>(out),
                                       scores.data_ptr<float>(),
                                       keys.stride(0),
                                       heads / keys.size(0),
                                       head_dim,
                                       tokens,
                                       static_cast<float>(scale)};
    const auto kernels = cpu::decode_kernels<T>();
    cpu::for_rows(heads, 2 * tokens * head_dim,
                  [&](std::int64_t begin, std::int64_t end) { kernels.heads(args, begin, end); });
  });
}

/// Row i of the new ones may see everything up to its own position, cached tokens included.
at::Tensor causal_mask(const at::Tensor& q, std::int64_t total) {
  const auto positions = q.options().dtype(at::kLong);
  const auto rows = at::arange(total - q.size(0), total, positions).unsqueeze(1);
  return at::arange(0, total, positions).unsqueeze(0).le(rows);
}

}  // namespace

void attention_decode(const at::Tensor& q, const at::Tensor& keys, const at::Tensor& values, double scale,
                      const at::Tensor& out, Workspace& workspace) {
  QFT_ASSERT(q.stride(2) == 1 && q.stride(1) == q.size(2) && keys.stride(1) == q.size(2) && keys.strides() == values.strides(),
             "q is not in rows of whole heads, or keys and values not alike");
  if (by_kernel(q, keys, values, scale, out, workspace)) return;
  const auto queries = q.transpose(0, 1).unsqueeze(0);  // [1, heads, T, head_dim]
  std::optional<at::Tensor> mask;
  if (q.size(0) > 1) mask = causal_mask(q, keys.size(1));
  const auto result = at::scaled_dot_product_attention(queries, keys.unsqueeze(0), values.unsqueeze(0), mask, 0.0,
                                                       /*is_causal=*/false, scale, /*enable_gqa=*/true);
  out.copy_(result.squeeze(0).transpose(0, 1).reshape(out.sizes()));
}

}  // namespace qft::model::ops
