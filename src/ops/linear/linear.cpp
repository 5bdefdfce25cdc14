#include "qft/ops/linear.h"

#include "qft/core/error.h"
#include "qft/ops/dora.h"
#include "qft/ops/oft.h"
#include "qft/ops/token_sums.h"

#include <algorithm>
#include <array>
#include <utility>

#include "../common/device_kernels.h"
#include "../common/tensors_cpu.h"
#include "linear_parts.h"
#include "matmul.h"
#include <ATen/ops/addmm.h>

namespace qft::ops {
namespace {

/// y = scale * x weight^T + bias, or with `add` y += x weight^T, with the kernel for few rows; false if there is none.
bool gemv_into(const at::Tensor& y, const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias, Workspace& workspace,
               double scale = 1.0, bool add = false) {
  if (x.size(0) > kMaxGemvRows || weight.stride(1) != 1 || y.stride(1) != 1) return false;
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
                            static_cast<float>(scale),
                            add};
    const auto kernels = cpu::gemv_kernels<T>();
    cpu::for_rows(weight.size(0), x.size(1), [&](std::int64_t begin, std::int64_t end) { kernels.rows(args, begin, end); });
  });
}

/// Returns the parts' A, or its gradient, as one [sum of ranks, K] view if they are adjacent in memory; otherwise undefined.
template <class Part>
at::Tensor fused_a(const std::vector<Part>& parts) {
  const at::Tensor& first = parts.front().a;
  std::int64_t rows = 0;
  const char* end = nullptr;
  for (const Part& part : parts) {
    const at::Tensor& a = part.a;
    if (!a.defined() || !a.is_contiguous() || !a.is_alias_of(first)) return {};
    const auto* begin = static_cast<const char*>(a.const_data_ptr());
    if (end != nullptr && begin != end) return {};
    end = begin + a.nbytes();
    rows += a.size(0);
  }
  return first.as_strided({rows, first.size(1)}, first.strides(), first.storage_offset());
}

bool same_scaling(const LinearWeights& w) {
  return std::ranges::all_of(w.lora, [&](const LoraPart& part) { return part.scaling == w.lora.front().scaling; });
}

/// Computes scaling * gy B for all parts, [T, sum of ranks]: the gradient of dropout(x) A^T.
at::Tensor project_up_backward(const at::Tensor& gy, const LinearWeights& w, Workspace& workspace) {
  // On the CPU, ATen's skinny products run up to ten times faster with the short dimension first. On a device, rows of ranks keep
  // operands aligned for any number of tokens.
  const bool few_first = gy.is_cpu() && !blocked::supports(gy);
  const std::int64_t tokens = gy.size(0), columns = lora_saved_columns(w);
  const at::Tensor held =
      workspace.get("op.lora_gsaved", {few_first ? columns : tokens, few_first ? tokens : columns}, gy.scalar_type());
  const at::Tensor gsaved = few_first ? held.t() : held;
  for_parts(w, gsaved, [&](std::size_t i, const at::Tensor& place) {
    const LoraPart& part = w.lora[i];
    const at::Tensor g = gy.narrow(1, part.row0, part.rows);
    if (few_first)
      mm_into(place.t(), part.b.t(), g.t(), workspace, part.scaling);
    else
      mm_into(place, g, part.b, workspace, part.scaling);
  });
  return gsaved;
}

/// Returns LoRA's terms in gx, without dropout, in addition to gy W.
std::vector<blocked::NarrowTerm> input_grad_terms(const LinearWeights& w, const at::Tensor& gsaved) {
  if (const at::Tensor a = fused_a(w.lora); a.defined()) return {{gsaved, a}};
  std::vector<blocked::NarrowTerm> terms;
  for_parts(w, gsaved, [&](std::size_t i, const at::Tensor& columns) { terms.push_back({columns, w.lora[i].a}); });
  return terms;
}

/// Outputs of up to this many bytes stay in a device's cache until the next product, which adds to them at little cost.
constexpr std::size_t kCachedBytes = std::size_t{32} << 20;

/// True if the terms are one column range after another.
bool side_by_side(const std::vector<blocked::NarrowTerm>& terms) {
  std::int64_t end = 0;
  return std::ranges::all_of(terms,
                             [&](const auto& term) { return std::exchange(end, term.column0 + term.b.size(1)) <= term.column0; });
}

/// out = (or +=) terms by one kernel of the device's own; false if it has none for them.
bool queue_terms(const at::Tensor& out, const std::vector<blocked::NarrowTerm>& terms, bool add) {
  const DeviceKernels* const kernels = device_kernels(out);
  return kernels != nullptr && side_by_side(terms) && kernels->narrow_terms(out, terms, add);
}

/// out = a b + terms on a device. The terms are written first, and the large product adds to them while it computes; added
/// afterwards, each would read and write `out` once more. Returns false and does nothing on the CPU, if `out` stays in the cache,
/// or if the terms leave columns out.
bool terms_then_product(const at::Tensor& out, const at::Tensor& a, const at::Tensor& b,
                        const std::vector<blocked::NarrowTerm>& terms, Workspace& workspace) {
  if (out.is_cpu() || out.nbytes() <= kCachedBytes || !side_by_side(terms)) return false;
  std::int64_t columns = 0;
  for (const blocked::NarrowTerm& term : terms) columns += term.b.size(1);
  if (columns != out.size(1)) return false;
  if (!queue_terms(out, terms, false))
    for (const blocked::NarrowTerm& term : terms) mm_into(out.narrow(1, term.column0, term.b.size(1)), term.a, term.b, workspace);
  out.addmm_(a, b);
  return true;
}

/// gx = (or +=) gy W, plus LoRA's terms without dropout.
void input_grad(const at::Tensor& gy, const LinearWeights& w, const LoraDropout& dropout, const at::Tensor& gsaved,
                const at::Tensor& gx, GradMode mode, Workspace& workspace) {
  std::vector<blocked::NarrowTerm> terms;
  if (!w.lora.empty() && dropout.p == 0.0) terms = input_grad_terms(w, gsaved);
  if (mode == GradMode::write && terms_then_product(gx, gy, w.weight, terms, workspace)) return;
  if (mode == GradMode::accumulate || !blocked::multiply({gx, gy, w.weight, {}, 1.0, terms}, workspace)) {
    if (mode == GradMode::write) mm_into(gx, gy, w.weight, workspace);
    if (mode == GradMode::accumulate) gx.addmm_(gy, w.weight);
    if (terms.empty() || queue_terms(gx, terms, true)) return;
    for (const blocked::NarrowTerm& term : terms) gx.addmm_(term.a, term.b);
  }
}

/// gb += gy^T saved for each part, and without dropout ga += gsaved^T x.
void lora_grads(const at::Tensor& gy, const at::Tensor& x, const LinearWeights& w, const LoraDropout& dropout,
                const at::Tensor& saved, const at::Tensor& gsaved, const std::vector<LinearGrads::Lora>& grads,
                Workspace& workspace) {
  std::vector<TokenSum> sums;
  for_parts(w, saved, [&](std::size_t i, const at::Tensor& columns) {
    const LoraPart& part = w.lora[i];
    if (grads[i].b.defined()) sums.push_back({grads[i].b.t(), columns, gy.narrow(1, part.row0, part.rows)});
  });
  if (dropout.p == 0.0) {
    if (const at::Tensor all = fused_a(grads); all.defined())
      sums.push_back({all, gsaved, x});
    else
      for_parts(w, gsaved, [&](std::size_t i, const at::Tensor& columns) {
        if (grads[i].a.defined()) sums.push_back({grads[i].a, columns, x});
      });
  }
  add_token_sums(sums, workspace);
}

/// With dropout, uses one mask per part: gx += dropout^T(gsaved A) if gx is defined, and ga += gsaved^T dropout(x).
void dropout_grads(const at::Tensor& x, const LinearWeights& w, const LoraDropout& dropout, const at::Tensor& gsaved,
                   const at::Tensor& gx, const std::vector<LinearGrads::Lora>& grads, Workspace& workspace) {
  for_parts(w, gsaved, [&](std::size_t i, const at::Tensor& columns) {
    const LoraPart& part = w.lora[i];
    DropoutBackward tensors;
    if (gx.defined()) {
      tensors.gx = gx;
      tensors.g = workspace.get("op.lora_gx", gx.sizes(), gx.scalar_type());
      mm_into(tensors.g, columns, part.a, workspace);
    }
    const at::Tensor ga = grads.empty() ? at::Tensor() : grads[i].a;
    if (ga.defined()) {
      tensors.x = x;
      tensors.out = workspace.get("op.lora_dropped", x.sizes(), x.scalar_type());
    }
    dropout_backward(tensors, key_of(part, dropout), dropout.rows, dropout.p);
    if (ga.defined()) add_token_sums(std::array{TokenSum{ga, columns, tensors.out}}, workspace);
  });
}

/// y = x W^T + bias
void base_forward(const at::Tensor& x, const LinearWeights& w, const at::Tensor& y, Workspace& workspace) {
  if (gemv_into(y, x, w.weight, w.bias, workspace)) return;
  if (!w.bias.defined()) return mm_into(y, x, w.weight.t(), workspace);
  at::Tensor out = y;
  at::addmm_out(out, w.bias, x, w.weight.t());
}

bool is_dora(const LinearWeights& w) {
  return !w.lora.empty() && w.lora.front().factor.defined();
}

}  // namespace

DropoutKey key_of(const LoraPart& part, const LoraDropout& dropout) {
  DropoutKey key = dropout.key;
  key.site = part.site;
  key.first_feature = part.first_feature;
  return key;
}

at::Tensor dropped_input(const at::Tensor& x, const LoraPart& part, const LoraDropout& dropout, Workspace& workspace) {
  if (dropout.p == 0.0) return x;
  const at::Tensor out = workspace.get("op.lora_dropped", x.sizes(), x.scalar_type());
  dropout_forward(x, key_of(part, dropout), dropout.rows, dropout.p, out);
  return out;
}

void project_down(const at::Tensor& x, const LinearWeights& w, const LoraDropout& dropout, const at::Tensor& saved,
                  Workspace& workspace) {
  if (dropout.p == 0.0 && same_scaling(w)) {
    if (const at::Tensor a = fused_a(w.lora); a.defined()) {
      const double scaling = w.lora.front().scaling;
      if (!gemv_into(saved, x, a, {}, workspace, scaling)) mm_into(saved, x, a.t(), workspace, scaling);
      return;
    }
  }
  for_parts(w, saved, [&](std::size_t i, const at::Tensor& columns) {
    const LoraPart& part = w.lora[i];
    mm_into(columns, dropped_input(x, part, dropout, workspace), part.a.t(), workspace, part.scaling);
  });
}

std::vector<blocked::NarrowTerm> output_terms(const LinearWeights& w, const at::Tensor& saved) {
  std::vector<blocked::NarrowTerm> terms;
  for_parts(w, saved,
            [&](std::size_t i, const at::Tensor& columns) { terms.push_back({columns, w.lora[i].b.t(), w.lora[i].row0}); });
  return terms;
}

std::int64_t lora_saved_columns(const LinearWeights& w) {
  std::int64_t sum = 0;
  for (const LoraPart& part : w.lora) sum += part.a.size(-2) + (part.factor.defined() ? part.rows : 0);
  return sum;
}

void linear_forward(const at::Tensor& x, const LinearWeights& w, const LoraDropout& dropout, const at::Tensor& y,
                    const at::Tensor& saved, Workspace& workspace) {
  if (is_dora(w)) return dora_forward(x, w, dropout, y, saved, workspace);
  if (!w.oft.empty()) return oft_forward(x, w, y, workspace);
  if (!w.lora.empty()) project_down(x, w, dropout, saved, workspace);
  const auto terms = output_terms(w, saved);
  if (x.size(0) > kMaxGemvRows && blocked::multiply({y, x, w.weight.t(), w.bias, 1.0, terms}, workspace)) return;
  if (!w.bias.defined() && terms_then_product(y, x, w.weight.t(), terms, workspace)) return;
  base_forward(x, w, y, workspace);
  if (terms.empty() || queue_terms(y, terms, true)) return;
  for (const blocked::NarrowTerm& term : terms) {
    const at::Tensor place = y.narrow(1, term.column0, term.b.size(1));
    if (!gemv_into(place, term.a, term.b.t(), {}, workspace, 1.0, true)) place.addmm_(term.a, term.b);
  }
}

void linear_backward(const LinearBackward& t, const LinearWeights& w, const LoraDropout& dropout, const LinearGrads& grads,
                     Workspace& workspace) {
  QFT_ASSERT(grads.lora.empty() || grads.lora.size() == w.lora.size(), "{} LoRA gradients for {} parts", grads.lora.size(),
             w.lora.size());
  if (is_dora(w)) return dora_backward(t, w, dropout, grads, workspace);
  if (!w.oft.empty()) return oft_backward(t, w, grads, workspace);
  const at::Tensor gsaved = w.lora.empty() ? at::Tensor() : project_up_backward(t.gy, w, workspace);
  if (t.mode != GradMode::skip) input_grad(t.gy, w, dropout, gsaved, t.gx, t.mode, workspace);
  if (grads.weight.defined()) add_token_sums(std::array{TokenSum{grads.weight, t.gy, t.x}}, workspace);
  if (grads.bias.defined()) grads.bias.add_(t.gy.sum(0, false, grads.bias.scalar_type()));
  if (!grads.lora.empty()) lora_grads(t.gy, t.x, w, dropout, t.saved, gsaved, grads.lora, workspace);
  if (dropout.p > 0.0)
    dropout_grads(t.x, w, dropout, gsaved, t.mode == GradMode::skip ? at::Tensor() : t.gx, grads.lora, workspace);
}

}  // namespace qft::ops
