#include "qft/model/ops/linear.h"

#include "qft/core/error.h"

#include <algorithm>
#include <optional>

#include "cpu/tensors.h"
#include <ATen/ops/addmm.h>
#include <ATen/ops/mm.h>

namespace qft::model::ops {
namespace {

/// y = x weight^T + bias, or y += scale * x weight^T, by the kernel for few rows; false where there is none.
bool gemv_into(const at::Tensor& y, const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
               Workspace& workspace, std::optional<double> add_scaled = {}) {
  if (x.size(0) > kFewRows || weight.stride(1) != 1 || y.stride(1) != 1) return false;
  return cpu::with_kernel_type(x, [&]<class T>() {
    const at::Tensor wide = workspace.get("op.gemv_x", x.sizes(), at::kFloat);
    wide.copy_(x);
    const cpu::Gemv<T> args{const_data<T>(weight),
                            const_data<T>(bias),
                            wide.const_data_ptr<float>(),
                            data<T>(y),
                            weight.stride(0),
                            y.stride(0),
                            x.size(0),
                            x.size(1),
                            static_cast<float>(add_scaled.value_or(1.0)),
                            add_scaled.has_value()};
    const auto kernels = cpu::gemv_kernels<T>();
    cpu::for_rows(weight.size(0), x.size(1),
                  [&](std::int64_t begin, std::int64_t end) { kernels.rows(args, begin, end); });
  });
}

void mm_into(const at::Tensor& out, const at::Tensor& a, const at::Tensor& b) {
  at::Tensor result = out;
  at::mm_out(result, a, b);
}

/// The parts' A as one [sum of ranks, K] view where they lie one after another in memory; undefined where
/// they do not.
at::Tensor fused_a(const LinearWeights& w) {
  const at::Tensor& first = w.lora.front().a;
  if (!first.is_contiguous()) return {};
  const char* end = static_cast<const char*>(first.data_ptr()) + first.nbytes();
  for (std::size_t i = 1; i < w.lora.size(); ++i) {
    const at::Tensor& a = w.lora[i].a;
    if (!a.is_contiguous() || a.data_ptr() != end || !a.is_alias_of(first)) return {};
    end += a.nbytes();
  }
  return first.as_strided({lora_saved_columns(w), first.size(1)}, first.strides(), first.storage_offset());
}

DropoutKey key_of(const LoraPart& part, const LoraDropout& dropout) {
  DropoutKey key = dropout.key;
  key.site = part.site;
  return key;
}

/// dropout(x) for one part; x itself without dropout.
at::Tensor dropped_input(const at::Tensor& x, const LoraPart& part, const LoraDropout& dropout,
                         Workspace& workspace) {
  if (dropout.p == 0.0) return x;
  const at::Tensor out = workspace.get("op.lora_dropped", x.sizes(), x.scalar_type());
  dropout_forward(x, key_of(part, dropout), dropout.rows, dropout.p, out);
  return out;
}

/// saved = dropout(x) A^T of all parts.
void project_down(const at::Tensor& x, const LinearWeights& w, const LoraDropout& dropout,
                  const at::Tensor& saved, Workspace& workspace) {
  if (dropout.p == 0.0) {
    if (const at::Tensor a = fused_a(w); a.defined()) {
      if (!gemv_into(saved, x, a, {}, workspace)) mm_into(saved, x, a.t());
      return;
    }
  }
  std::int64_t column = 0;
  for (const LoraPart& part : w.lora) {
    const std::int64_t rank = part.a.size(0);
    mm_into(saved.narrow(1, column, rank), dropped_input(x, part, dropout, workspace), part.a.t());
    column += rank;
  }
}

/// Gradient of `saved`, transposed: scaling * B^T gy^T of all parts, [sum of ranks, T]. With the few rows
/// first, these skinny products run up to ten times faster than the other way round.
void project_up_backward(const at::Tensor& gy, const LinearWeights& w, const at::Tensor& gsaved_t) {
  std::int64_t row = 0;
  for (const LoraPart& part : w.lora) {
    const std::int64_t rank = part.b.size(1);
    at::Tensor place = gsaved_t.narrow(0, row, rank);
    mm_into(place, part.b.t(), gy.narrow(1, part.row0, part.rows).t());
    if (part.scaling != 1.0) place.mul_(part.scaling);
    row += rank;
  }
}

/// gx += dropout^T(gsaved A).
void lora_input_grad(const LinearWeights& w, const LoraDropout& dropout, const at::Tensor& gsaved_t,
                     const at::Tensor& gx, Workspace& workspace) {
  if (dropout.p == 0.0) {
    if (const at::Tensor a = fused_a(w); a.defined()) {
      gx.addmm_(gsaved_t.t(), a);
      return;
    }
  }
  std::int64_t row = 0;
  for (const LoraPart& part : w.lora) {
    const at::Tensor g = gsaved_t.narrow(0, row, part.a.size(0)).t();
    row += part.a.size(0);
    if (dropout.p == 0.0) {
      gx.addmm_(g, part.a);
      continue;
    }
    const at::Tensor dense = workspace.get("op.lora_gx", gx.sizes(), gx.scalar_type());
    mm_into(dense, g, part.a);
    dropout_backward_add(dense, key_of(part, dropout), dropout.rows, dropout.p, gx);
  }
}

/// ga += gsaved^T dropout(x) of each part; without dropout by one product.
void lora_a_grads(const at::Tensor& x, const LinearWeights& w, const LoraDropout& dropout,
                  const at::Tensor& gsaved_t, const std::vector<LinearGrads::Lora>& grads,
                  Workspace& workspace) {
  const at::Tensor products =
      workspace.get("op.lora_ga", {gsaved_t.size(0), w.weight.size(1)}, gsaved_t.scalar_type());
  const bool wanted = std::ranges::any_of(grads, [](const LinearGrads::Lora& g) { return g.a.defined(); });
  if (wanted && dropout.p == 0.0) mm_into(products, gsaved_t, x);
  std::int64_t row = 0;
  for (std::size_t i = 0; i < w.lora.size(); ++i) {
    const std::int64_t rank = w.lora[i].a.size(0);
    const at::Tensor product = products.narrow(0, row, rank);
    if (grads[i].a.defined()) {
      if (dropout.p != 0.0)
        mm_into(product, gsaved_t.narrow(0, row, rank), dropped_input(x, w.lora[i], dropout, workspace));
      grads[i].a.add_(product);
    }
    row += rank;
  }
}

/// gb += scaling * gy^T saved of each part, by way of its transpose.
void lora_b_grads(const at::Tensor& gy, const LinearWeights& w, const at::Tensor& saved,
                  const std::vector<LinearGrads::Lora>& grads, Workspace& workspace) {
  std::int64_t column = 0;
  for (std::size_t i = 0; i < w.lora.size(); ++i) {
    const LoraPart& part = w.lora[i];
    const std::int64_t rank = part.b.size(1);
    if (grads[i].b.defined()) {
      const at::Tensor product = workspace.get("op.lora_gb", {rank, part.rows}, gy.scalar_type());
      mm_into(product, saved.narrow(1, column, rank).t(), gy.narrow(1, part.row0, part.rows));
      grads[i].b.add_(product.t(), part.scaling);
    }
    column += rank;
  }
}

/// grad += scale * part, contiguous and of different dtypes: what ATen does slowly on the CPU.
void add_scaled(const at::Tensor& grad, const at::Tensor& part, double scale) {
  const bool done =
      grad.scalar_type() == at::kFloat && grad.is_contiguous() && cpu::with_kernel_type(part, [&]<class T>() {
        const auto kernels = cpu::activation_kernels<T>();
        const std::int64_t width = part.size(1);
        cpu::for_rows(part.size(0), width, [&](std::int64_t begin, std::int64_t end) {
          kernels.add_to_float(data<float>(grad) + begin * width,
                               const_data<T>(part) + begin * width, static_cast<float>(scale),
                               (end - begin) * width);
        });
      });
  if (!done) grad.add_(part, scale);
}

void base_forward(const at::Tensor& x, const LinearWeights& w, const at::Tensor& y, Workspace& workspace) {
  if (gemv_into(y, x, w.weight, w.bias, workspace)) return;
  if (!w.bias.defined()) return mm_into(y, x, w.weight.t());
  at::Tensor out = y;
  at::addmm_out(out, w.bias, x, w.weight.t());
}

}  // namespace

std::int64_t lora_saved_columns(const LinearWeights& w) {
  std::int64_t sum = 0;
  for (const LoraPart& part : w.lora) sum += part.a.size(0);
  return sum;
}

void accumulate_matmul_tn(const at::Tensor& grad, const at::Tensor& a, const at::Tensor& b, double scale,
                          Workspace& workspace) {
  if (grad.scalar_type() == a.scalar_type()) {
    grad.addmm_(a.t(), b, 1, scale);
    return;
  }
  const std::int64_t rows = grad.size(0), columns = grad.size(1);
  const std::int64_t step =
      std::clamp<std::int64_t>(kGradChunkElements / std::max<std::int64_t>(columns, 1), 1, rows);
  for (std::int64_t first = 0; first < rows; first += step) {
    const std::int64_t n = std::min(step, rows - first);
    const at::Tensor part = workspace.get("op.matmul_tn", {n, columns}, a.scalar_type());
    mm_into(part, a.narrow(1, first, n).t(), b);
    add_scaled(grad.narrow(0, first, n), part, scale);
  }
}

void linear_forward(const at::Tensor& x, const LinearWeights& w, const LoraDropout& dropout,
                    const at::Tensor& y, const at::Tensor& saved, Workspace& workspace) {
  base_forward(x, w, y, workspace);
  if (w.lora.empty()) return;
  project_down(x, w, dropout, saved, workspace);
  std::int64_t column = 0;
  for (const LoraPart& part : w.lora) {
    const std::int64_t rank = part.b.size(1);
    const at::Tensor place = y.narrow(1, part.row0, part.rows), h = saved.narrow(1, column, rank);
    if (!gemv_into(place, h, part.b, {}, workspace, part.scaling)) place.addmm_(h, part.b.t(), 1, part.scaling);
    column += rank;
  }
}

void linear_backward(const at::Tensor& gy, const at::Tensor& x, const LinearWeights& w,
                     const LoraDropout& dropout, const at::Tensor& saved, const at::Tensor& gx, GradMode mode,
                     const LinearGrads& grads, Workspace& workspace) {
  QFT_ASSERT(grads.lora.empty() || grads.lora.size() == w.lora.size(), "{} LoRA gradients for {} parts",
             grads.lora.size(), w.lora.size());
  if (mode == GradMode::write) mm_into(gx, gy, w.weight);
  if (mode == GradMode::accumulate) gx.addmm_(gy, w.weight);
  if (grads.weight.defined()) accumulate_matmul_tn(grads.weight, gy, x, 1.0, workspace);
  if (grads.bias.defined()) grads.bias.add_(gy.sum(0, false, grads.bias.scalar_type()));
  if (w.lora.empty()) return;
  const at::Tensor gsaved_t =
      workspace.get("op.lora_gsaved", {lora_saved_columns(w), gy.size(0)}, gy.scalar_type());
  project_up_backward(gy, w, gsaved_t);
  if (mode != GradMode::skip) lora_input_grad(w, dropout, gsaved_t, gx, workspace);
  if (grads.lora.empty()) return;
  lora_a_grads(x, w, dropout, gsaved_t, grads.lora, workspace);
  lora_b_grads(gy, w, saved, grads.lora, workspace);
}

}  // namespace qft::model::ops
