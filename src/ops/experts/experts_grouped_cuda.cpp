#include "experts_grouped_cuda.h"

#include "qft/core/error.h"
#include "qft/ops/token_sums.h"

#include <array>

#include "../linear/linear_parts.h"
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

namespace qft::ops {
namespace {

/// Experts have no bias, and neither DoRA nor OFT.
bool supports(GroupedProduct product, const LinearWeights& stack, const LoraDropout& dropout) {
  const bool dora = !stack.lora.empty() && stack.lora.front().factor.defined();
  QFT_ASSERT(!dora && stack.oft.empty() && !stack.bias.defined(),
             "experts support neither DoRA, OFT nor a bias (stack of {} experts)", stack.weight.size(0));
  return product != nullptr && dropout.p == 0.0;
}

/// Computes the product of all groups; falls back to one product per group if the device rejects the strides.
class Products {
 public:
  Products(GroupedProduct product, const ExpertRows& grouped_rows) : product_(product), dealt_(grouped_rows) {}

  at::Tensor operator()(const at::Tensor& a, const at::Tensor& b) const {
    const at::Tensor all = product_(a, b, dealt_.ends);
    return all.defined() ? all : one_by_one(a, b);
  }

 private:
  at::Tensor one_by_one(const at::Tensor& a, const at::Tensor& b) const {
    const bool rows = b.dim() == 3;
    const auto groups = static_cast<std::int64_t>(dealt_.begins.size()) - 1;
    const at::Tensor out =
        rows ? at::empty({a.size(0), b.size(2)}, a.options()) : at::zeros({groups, a.size(0), b.size(1)}, a.options());
    for_each_expert(dealt_, [&](std::int64_t g, std::int64_t first, std::int64_t count) {
      at::Tensor place = rows ? out.narrow(0, first, count) : out.select(0, g);
      rows ? at::mm_out(place, a.narrow(0, first, count), b.select(0, g))
           : at::mm_out(place, a.narrow(1, first, count), b.narrow(0, first, count));
    });
    return out;
  }

  GroupedProduct product_;
  const ExpertRows& dealt_;
};

/// Rounded like bf16 products: for small factors, one launch is worth more than an fp32 sum.
void lora_grads(const Products& product, const at::Tensor& gy, const at::Tensor& x, const LinearWeights& stack,
                const at::Tensor& saved, const at::Tensor& gsaved, const std::vector<LinearGrads::Lora>& grads) {
  for_parts(stack, saved, [&](std::size_t i, const at::Tensor& columns) {
    const LoraPart& part = stack.lora[i];
    if (grads[i].b.defined()) grads[i].b.add_(product(gy.narrow(1, part.row0, part.rows).t(), columns));
  });
  for_parts(stack, gsaved, [&](std::size_t i, const at::Tensor& columns) {
    if (grads[i].a.defined()) grads[i].a.add_(product(columns.t(), x));
  });
}

}  // namespace

bool grouped_forward(GroupedProduct product, const ExpertRows& grouped_rows, const at::Tensor& x, const LinearWeights& stack,
                     const LoraDropout& dropout, const at::Tensor& y, const at::Tensor& saved) {
  if (!supports(product, stack, dropout)) return false;
  at::Tensor base = product(x, stack.weight.transpose(1, 2), grouped_rows.ends);
  if (!base.defined()) return false;
  const Products multiply(product, grouped_rows);
  y.copy_(base);
  base.reset();  // LoRA's product is as large
  for_parts(stack, saved, [&](std::size_t i, const at::Tensor& columns) {
    const LoraPart& part = stack.lora[i];
    columns.copy_(multiply(x, part.a.transpose(1, 2))).mul_(part.scaling);
    y.narrow(1, part.row0, part.rows).add_(multiply(columns, part.b.transpose(1, 2)));
  });
  return true;
}

bool grouped_backward(GroupedProduct product, const ExpertRows& grouped_rows, const LinearBackward& t, const LinearWeights& stack,
                      const LoraDropout& dropout, const LinearGrads& grads, Workspace& workspace) {
  if (!supports(product, stack, dropout)) return false;
  at::Tensor gbase = t.mode == GradMode::skip ? at::Tensor() : product(t.gy, stack.weight, grouped_rows.ends);
  if (t.mode != GradMode::skip && !gbase.defined()) return false;
  if (t.mode == GradMode::write) t.gx.copy_(gbase);
  if (t.mode == GradMode::accumulate) t.gx.add_(gbase);
  gbase.reset();
  if (!stack.lora.empty()) {
    const Products multiply(product, grouped_rows);
    const at::Tensor gsaved = workspace.get("op.lora_gsaved", {t.gy.size(0), lora_saved_columns(stack)}, t.gy.scalar_type());
    for_parts(stack, gsaved, [&](std::size_t i, const at::Tensor& columns) {
      const LoraPart& part = stack.lora[i];
      columns.copy_(multiply(t.gy.narrow(1, part.row0, part.rows), part.b)).mul_(part.scaling);
      if (t.mode != GradMode::skip) t.gx.add_(multiply(columns, part.a));
    });
    if (!grads.lora.empty()) lora_grads(multiply, t.gy, t.x, stack, t.saved, gsaved, grads.lora);
  }
  if (!grads.weight.defined()) return true;
  // One by one, to keep the sums in fp32; the grouped product would round them.
  for_each_expert(grouped_rows, [&](std::int64_t e, std::int64_t first, std::int64_t rows) {
    add_token_sums(std::array{TokenSum{grads.weight.select(0, e), t.gy.narrow(0, first, rows), t.x.narrow(0, first, rows)}},
                   workspace);
  });
  return true;
}

std::int64_t grouped_product_bytes(std::int64_t rows, std::int64_t columns, at::ScalarType dtype) {
  return dtype == at::kBFloat16 ? rows * columns * static_cast<std::int64_t>(c10::elementSize(dtype)) : 0;
}

}  // namespace qft::ops
