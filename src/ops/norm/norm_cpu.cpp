// RMSNorm of rows; statistics and arithmetic are fp32 for every row type.
// foreach_target.h compiles this file once per instruction set; it must come before the kernels' own headers.
// clang-format off
#include "../common/targets_cpu.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/norm/norm_cpu.cpp"
#include <hwy/foreach_target.h>
#include "qft/ops/cpu/kernels.h"
#include "../common/vector-inl.h"
// clang-format on

#include <cmath>

HWY_BEFORE_NAMESPACE();
namespace qft::ops::cpu {
namespace HWY_NAMESPACE {

template <class T>
void forward_rows(const RmsNormForward<T>& a, std::int64_t begin, std::int64_t end) {
  const auto width = static_cast<std::size_t>(a.width);
  for (std::int64_t r = begin; r < end; ++r) {
    const T* x = a.x.row(r / a.heads, r % a.heads);
    T* y = a.y.row(r / a.heads, r % a.heads);
    const float squares = sum_over(width, [&](std::size_t i, auto extent, Vec sum) HWY_ATTR {
      const Vec v = load(x + i, extent);
      return hn::MulAdd(v, v, sum);
    });
    const float rstd = 1.0F / std::sqrt(squares / static_cast<float>(width) + static_cast<float>(a.eps));
    a.rstd[r] = rstd;
    const Vec scale = splat(rstd), weight_offset = splat(a.weight_offset);
    for_vectors(width, [&](std::size_t i, auto extent) HWY_ATTR {
      const Vec normed = hn::Mul(load(x + i, extent), scale);
      const Vec weight = hn::Add(load(a.weight + i, extent), weight_offset);
      store(hn::Mul(weight, a.rounds_before_weight ? rounded(x, normed) : normed), y + i, extent);
    });
  }
}

/// gx = rstd * (gy w - xhat * mean(gy w xhat)), xhat = x rstd.
template <class T>
void backward_rows(const RmsNormBackward<T>& a, float* gweight, std::int64_t begin, std::int64_t end) {
  const auto width = static_cast<std::size_t>(a.width);
  for (std::int64_t r = begin; r < end; ++r) {
    const std::int64_t token = r / a.heads, head = r % a.heads;
    const T *gy = a.gy.row(token, head), *x = a.x.row(token, head);
    const T* residual = a.residual_grad.data ? a.residual_grad.row(token, head) : nullptr;
    T* gx = a.gx.row(token, head);
    const Vec rstd = splat(a.rstd[r]), weight_offset = splat(a.weight_offset);
    const float dot = sum_over(width, [&](std::size_t i, auto extent, Vec sum) HWY_ATTR {
      const Vec g = load(gy + i, extent), v = load(x + i, extent);
      if (gweight != nullptr) {
        const Vec normed = hn::Mul(v, rstd);
        store(hn::MulAdd(g, a.rounds_before_weight ? rounded(x, normed) : normed, load(gweight + i, extent)), gweight + i,
              extent);
      }
      return hn::MulAdd(hn::Mul(g, hn::Add(load(a.weight + i, extent), weight_offset)), v, sum);
    });
    const float s = a.rstd[r];
    const Vec share = splat(dot * s * s * s / static_cast<float>(width));
    for_vectors(width, [&](std::size_t i, auto extent) HWY_ATTR {
      const Vec weight = hn::Add(load(a.weight + i, extent), weight_offset);
      const Vec g = hn::Mul(hn::Mul(load(gy + i, extent), weight), rstd);
      Vec out = hn::NegMulAdd(load(x + i, extent), share, g);
      if (residual != nullptr) out = hn::Add(out, load(residual + i, extent));
      store(out, gx + i, extent);
    });
  }
}

NormKernels<float> norm_kernels_f32() {
  return {&forward_rows<float>, &backward_rows<float>};
}
NormKernels<Bf16> norm_kernels_bf16() {
  return {&forward_rows<Bf16>, &backward_rows<Bf16>};
}

}  // namespace HWY_NAMESPACE
}  // namespace qft::ops::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace qft::ops::cpu {

HWY_EXPORT(norm_kernels_f32);
HWY_EXPORT(norm_kernels_bf16);

template <>
NormKernels<float> norm_kernels() {
  return HWY_DYNAMIC_DISPATCH(norm_kernels_f32)();
}
template <>
NormKernels<Bf16> norm_kernels() {
  return HWY_DYNAMIC_DISPATCH(norm_kernels_bf16)();
}

}  // namespace qft::ops::cpu
#endif
