#include "qft/ops/dora.h"

#include "qft/core/error.h"
#include "qft/ops/token_sums.h"

#include <algorithm>
#include <array>

#include "../common/tensors_cpu.h"
#include "linear_parts.h"
#include "matmul.h"
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/sub.h>
#include <ATen/ops/sum.h>

namespace qft::ops {
namespace {

/// Elements of W + scaling B A per tile, if we have no kernel: few calls on a device, little memory.
constexpr std::int64_t kTileElements = 4 << 20;

at::ScalarType norm_dtype(const at::Tensor& t) {
  return t.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
}

std::int64_t tile_rows(std::int64_t columns) {
  return std::max<std::int64_t>(1, kTileElements / std::max<std::int64_t>(columns, 1));
}

void norms_by_tiles(const at::Tensor& weight, const at::Tensor& a, const at::Tensor& b, double scaling, const at::Tensor& norms) {
  const at::Tensor wide_a = a.to(norms.scalar_type()), wide_b = b.to(norms.scalar_type());
  const std::int64_t step = tile_rows(weight.size(1));
  for (std::int64_t first = 0; first < weight.size(0); first += step) {
    const std::int64_t n = std::min(step, weight.size(0) - first);
    at::Tensor tile = weight.narrow(0, first, n).to(norms.scalar_type(), /*non_blocking=*/false, /*copy=*/true);
    tile.addmm_(wide_b.narrow(0, first, n), wide_a, 1.0, scaling);
    norms.narrow(0, first, n).copy_(at::linalg_vector_norm(tile, 2, at::IntArrayRef{1}));
  }
}

std::int64_t sum_of_ranks(const LinearWeights& w) {
  std::int64_t sum = 0;
  for (const LoraPart& part : w.lora) sum += part.a.size(0);
  return sum;
}

/// Calls f(part, its columns of the saved outputs).
template <class F>
void for_outputs(const LinearWeights& w, const at::Tensor& saved, const F& f) {
  std::int64_t column = sum_of_ranks(w);
  for (std::size_t i = 0; i < w.lora.size(); ++i) {
    f(i, saved.narrow(1, column, w.lora[i].rows));
    column += w.lora[i].rows;
  }
}

/// Returns the same linear with only LoRA, without DoRA and bias.
LinearWeights lora_only(const LinearWeights& w) {
  LinearWeights result{w.weight, {}, w.lora};
  for (LoraPart& part : result.lora) part.factor = part.norm = at::Tensor();
  return result;
}

at::Tensor bias_of(const at::Tensor& bias, const LoraPart& part) {
  return bias.defined() ? bias.narrow(0, part.row0, part.rows) : bias;
}

/// u = y; y = factor * y + bias.
void apply_factor(const at::Tensor& y, const at::Tensor& u, const at::Tensor& factor, const at::Tensor& bias) {
  const bool done = cpu::with_kernel_type(y, [&]<class T>() {
    const DoraForward<T> args{data<T>(y),  data<T>(u), factor.const_data_ptr<float>(), const_data<T>(bias), y.stride(0),
                              u.stride(0), y.size(1)};
    const auto kernels = cpu::dora_kernels<T>();
    cpu::for_rows(y.size(0), y.size(1), [&](std::int64_t begin, std::int64_t end) { kernels.forward(args, begin, end); });
  });
  if (done) return;
  u.copy_(y);
  const at::Tensor scaled = at::mul(u, factor);
  y.copy_(bias.defined() ? scaled.add(bias) : scaled);
}

/// gu = factor * gy; magnitude gradient += sum over tokens of gy u / norm, if defined.
void apply_factor_backward(const at::Tensor& gy, const at::Tensor& u, const LoraPart& part, const at::Tensor& gu,
                           const at::Tensor& grad, Workspace& workspace) {
  at::Tensor sums;
  const bool done = cpu::with_kernel_type(gy, [&]<class T>() {
    // One row of sums per thread, added in thread order.
    const at::Tensor partial = workspace.get("op.dora_sums", {at::get_num_threads(), part.rows}, at::kFloat).zero_();
    const DoraBackward<T> args{const_data<T>(gy), const_data<T>(u), part.factor.const_data_ptr<float>(),
                               data<T>(gu),       gy.stride(0),     u.stride(0),
                               gu.stride(0),      part.rows};
    const auto kernels = cpu::dora_kernels<T>();
    cpu::for_rows(gy.size(0), part.rows, [&](std::int64_t begin, std::int64_t end) {
      kernels.backward(args, partial.data_ptr<float>() + at::get_thread_num() * part.rows, begin, end);
    });
    sums = partial.sum(0);
  });
  if (!done) {
    gu.copy_(at::mul(gy, part.factor));
    if (grad.defined()) sums = at::sum(at::mul(gy.to(part.factor.scalar_type()), u), 0);
  }
  if (grad.defined()) grad.add_(sums.div_(part.norm));
}

/// Returns each part's saved x A^T.
std::vector<at::Tensor> saved_ranks(const LinearWeights& w, const at::Tensor& saved) {
  std::vector<at::Tensor> ranks;
  for_parts(w, saved, [&](std::size_t, const at::Tensor& columns) { ranks.push_back(columns); });
  return ranks;
}

/// Returns the factors of all rows, fp32.
at::Tensor factors_of(const LinearWeights& w, Workspace& workspace) {
  const at::Tensor factors = workspace.get("op.dora_factors", {w.weight.size(0)}, at::kFloat);
  for (const LoraPart& part : w.lora) factors.narrow(0, part.row0, part.rows).copy_(part.factor);
  return factors;
}

/// Runs forward as one product that applies the factors while the sums are in cache; false if unsupported.
bool blocked_forward(const at::Tensor& x, const LinearWeights& w, const at::Tensor& y, const at::Tensor& saved,
                     Workspace& workspace) {
  std::int64_t rows = 0;
  for (const LoraPart& part : w.lora) rows += part.rows;
  if (x.size(0) <= kMaxGemvRows || !blocked::supports(y) || rows != w.weight.size(0)) return false;
  const at::Tensor ranks = saved.narrow(1, 0, sum_of_ranks(w));
  project_down(x, w, {}, ranks, workspace);
  return blocked::multiply(
      {y, x, w.weight.t(), w.bias, 1.0, output_terms(w, ranks), factors_of(w, workspace), saved.narrow(1, ranks.size(1), rows)},
      workspace);
}

void forward_with_dropout(const at::Tensor& x, const LinearWeights& w, const LoraDropout& dropout, const at::Tensor& y,
                          const at::Tensor& saved, Workspace& workspace) {
  linear_forward(x, {w.weight, w.bias, {}}, {}, y, {}, workspace);
  const std::vector<at::Tensor> ranks = saved_ranks(w, saved);
  for_outputs(w, saved, [&](std::size_t i, const at::Tensor& u) {
    const LoraPart& part = w.lora[i];
    const at::Tensor dropped = dropped_input(x, part, dropout, workspace);
    mm_into(ranks[i], dropped, part.a.t(), workspace, part.scaling);
    const at::Tensor base = workspace.get("op.dora_rows", u.sizes(), u.scalar_type());
    linear_forward(dropped, {w.weight.narrow(0, part.row0, part.rows), {}, {}}, {}, base, {}, workspace);
    u.copy_(base).addmm_(ranks[i], part.b.t());
    y.narrow(1, part.row0, part.rows).add_(at::sub(at::mul(u, part.factor), base));
  });
}

/// Adds one part's gradients with dropped input: gx += dropout^T(((factor - 1) * gy) W + gsaved A), ga, gb.
void dropped_part_backward(const at::Tensor& gy, const at::Tensor& x, const LinearWeights& w, std::size_t index,
                           const LoraDropout& dropout, const at::Tensor& saved, const at::Tensor& gu, const at::Tensor& gx,
                           const LinearGrads::Lora& grads, Workspace& workspace) {
  const LoraPart& part = w.lora[index];
  const at::Tensor gsaved = workspace.get("op.lora_gsaved", saved.sizes(), saved.scalar_type());
  mm_into(gsaved, gu, part.b, workspace, part.scaling);
  if (grads.b.defined()) add_token_sums(std::array{TokenSum{grads.b.t(), saved, gu}}, workspace);
  DropoutBackward tensors;
  if (gx.defined()) {
    gu.sub_(gy);
    tensors.gx = gx;
    tensors.g = workspace.get("op.lora_gx", gx.sizes(), gx.scalar_type());
    mm_into(tensors.g, gu, w.weight.narrow(0, part.row0, part.rows), workspace);
    tensors.g.addmm_(gsaved, part.a);
  }
  if (grads.a.defined()) {
    tensors.x = x;
    tensors.out = workspace.get("op.lora_dropped", x.sizes(), x.scalar_type());
  }
  if (!tensors.gx.defined() && !tensors.x.defined()) return;
  dropout_backward(tensors, key_of(part, dropout), dropout.rows, dropout.p);
  if (grads.a.defined()) add_token_sums(std::array{TokenSum{grads.a, gsaved, tensors.out}}, workspace);
}

void backward_with_dropout(const LinearBackward& t, const LinearWeights& w, const LoraDropout& dropout, const LinearGrads& grads,
                           Workspace& workspace) {
  linear_backward({.gy = t.gy, .gx = t.gx, .mode = t.mode}, {w.weight, {}, {}}, {}, {}, workspace);
  const std::vector<at::Tensor> ranks = saved_ranks(w, t.saved);
  for_outputs(w, t.saved, [&](std::size_t i, const at::Tensor& u) {
    const LoraPart& part = w.lora[i];
    const LinearGrads::Lora own = grads.lora.empty() ? LinearGrads::Lora{} : grads.lora[i];
    const at::Tensor g = t.gy.narrow(1, part.row0, part.rows);
    const at::Tensor gu = workspace.get("op.dora_rows", g.sizes(), g.scalar_type());
    apply_factor_backward(g, u, part, gu, own.magnitude, workspace);
    dropped_part_backward(g, t.x, w, i, dropout, ranks[i], gu, t.mode == GradMode::skip ? at::Tensor() : t.gx, own, workspace);
  });
}

}  // namespace

void dora_norms(const at::Tensor& weight, const at::Tensor& a, const at::Tensor& b, double scaling, const at::Tensor& norms) {
  QFT_ASSERT(norms.numel() == weight.size(0) && norms.scalar_type() == norm_dtype(weight), "{} norms for {} rows", norms.numel(),
             weight.size(0));
  const bool done = cpu::with_kernel_type(weight, [&]<class T>() {
    const DoraNorms<T> args{const_data<T>(weight), const_data<T>(a), const_data<T>(b),           norms.data_ptr<float>(),
                            weight.size(1),        a.size(0),        static_cast<float>(scaling)};
    const auto kernels = cpu::dora_kernels<T>();
    cpu::for_rows(weight.size(0), weight.size(1) * (a.size(0) + 1),
                  [&](std::int64_t begin, std::int64_t end) { kernels.norms(args, begin, end); });
  });
  if (!done) norms_by_tiles(weight, a, b, scaling, norms);
  norms.clamp_min_(kDoraMinNorm);
}

void dora_factors(const at::Tensor& magnitudes, const at::Tensor& norms, const at::Tensor& factors) {
  const at::Tensor rounded = norms.to(magnitudes.scalar_type()).to(norms.scalar_type()).clamp_min_(kDoraMinNorm);
  factors.copy_(magnitudes).div_(rounded);
}

std::int64_t dora_norm_bytes(std::int64_t columns) {
  return 3 * tile_rows(columns) * columns * std::int64_t{sizeof(float)};
}

std::int64_t dora_scratch_bytes(std::int64_t tokens, std::int64_t rows, at::ScalarType compute, bool dropout, bool on_cpu) {
  const auto item = static_cast<std::int64_t>(c10::elementSize(compute));
  const std::int64_t wide = compute == at::kDouble ? 8 : 4;
  return tokens * rows * (item + (dropout || !on_cpu ? 2 * wide : 0));
}

void dora_forward(const at::Tensor& x, const LinearWeights& w, const LoraDropout& dropout, const at::Tensor& y,
                  const at::Tensor& saved, Workspace& workspace) {
  if (dropout.p > 0.0) return forward_with_dropout(x, w, dropout, y, saved, workspace);
  if (blocked_forward(x, w, y, saved, workspace)) return;
  linear_forward(x, lora_only(w), {}, y, saved.narrow(1, 0, sum_of_ranks(w)), workspace);
  for_outputs(w, saved, [&](std::size_t i, const at::Tensor& u) {
    const LoraPart& part = w.lora[i];
    apply_factor(y.narrow(1, part.row0, part.rows), u, part.factor, bias_of(w.bias, part));
  });
  if (w.bias.defined())
    for_gaps(w, w.lora,
             [&](std::int64_t row0, std::int64_t rows) { y.narrow(1, row0, rows).add_(w.bias.narrow(0, row0, rows)); });
}

void dora_backward(const LinearBackward& t, const LinearWeights& w, const LoraDropout& dropout, const LinearGrads& grads,
                   Workspace& workspace) {
  QFT_ASSERT(!grads.weight.defined(), "DoRA does not train the weight itself ({} rows)", w.weight.size(0));
  if (grads.bias.defined()) grads.bias.add_(t.gy.sum(0, false, grads.bias.scalar_type()));
  if (dropout.p > 0.0) return backward_with_dropout(t, w, dropout, grads, workspace);
  const at::Tensor gu = workspace.get("op.dora_rows", t.gy.sizes(), t.gy.scalar_type());
  for_gaps(w, w.lora, [&](std::int64_t row0, std::int64_t rows) { gu.narrow(1, row0, rows).copy_(t.gy.narrow(1, row0, rows)); });
  for_outputs(w, t.saved, [&](std::size_t i, const at::Tensor& u) {
    const LoraPart& part = w.lora[i];
    apply_factor_backward(t.gy.narrow(1, part.row0, part.rows), u, part, gu.narrow(1, part.row0, part.rows),
                          grads.lora.empty() ? at::Tensor() : grads.lora[i].magnitude, workspace);
  });
  LinearGrads factors;
  for (const LinearGrads::Lora& lora : grads.lora) factors.lora.push_back({lora.a, lora.b});
  linear_backward({.gy = gu, .x = t.x, .saved = t.saved.narrow(1, 0, sum_of_ranks(w)), .gx = t.gx, .mode = t.mode}, lora_only(w),
                  {}, factors, workspace);
}

}  // namespace qft::ops
