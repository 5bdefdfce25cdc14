#include "linear_support.h"

#include <ATen/TensorOperators.h>

namespace qft::ops::testing {
namespace {

LoraDropout dropout_of(double p, std::int64_t tokens) {
  LoraDropout dropout{p, {1234, 7, 3, 0}, {}};
  if (p == 0) return dropout;
  std::vector<std::int32_t> positions(static_cast<std::size_t>(tokens));
  for (std::size_t i = 0; i < positions.size(); ++i) positions[i] = static_cast<std::int32_t>(i);
  dropout.rows = {int32s(positions).to(at::kLong) * 3, int32s(positions)};
  return dropout;
}

at::Tensor dropped(const at::Tensor& x, std::uint32_t site, const LoraDropout& dropout) {
  if (dropout.p == 0) return x;
  DropoutKey key = dropout.key;
  key.site = site;
  const at::Tensor mask = at::Tensor(x.detach().clone().fill_(1.0));
  dropout_forward(mask, key, dropout.rows, dropout.p, mask);
  return x * mask;
}

}  // namespace

Oracle compare_linear(const LinearCase& c, double p, double limit, const LinearFormula& formula) {
  const at::Tensor& x = c.inputs[0];
  const std::int64_t tokens = x.size(0);
  const at::Tensor gy = randn({tokens, c.w.weight.size(0)}, x.scalar_type(), 5);
  const LoraDropout dropout = dropout_of(p, tokens);
  Oracle oracle = differentiate(
      [&](const std::vector<at::Tensor>& in) {
        return formula(in, [&](const at::Tensor& rows, std::uint32_t site) { return dropped(rows, site, dropout); });
      },
      c.inputs, gy);

  const at::Tensor y = empty(gy.sizes(), x.scalar_type()), saved = empty({tokens, lora_saved_columns(c.w)}, x.scalar_type());
  linear_forward(x, c.w, dropout, y, saved, workspace());
  expect_close(y, oracle.value, limit, "y");

  const at::Tensor gx = empty(x.sizes(), x.scalar_type()), sum = randn(x.sizes(), x.scalar_type(), 6), before = sum.clone();
  linear_backward({.gy = gy, .x = x, .saved = saved, .gx = gx}, c.w, dropout, c.grads, workspace());
  expect_close(gx, oracle.grads[0], limit, "gx");
  linear_backward({.gy = gy, .x = x, .saved = saved, .gx = sum, .mode = GradMode::accumulate}, c.w, dropout, {}, workspace());
  expect_close(sum, before + oracle.grads[0], limit, "accumulated gx");
  linear_backward({.gy = gy, .x = x, .saved = saved, .mode = GradMode::skip}, c.w, dropout, c.grads, workspace());
  return oracle;
}

}  // namespace qft::ops::testing
