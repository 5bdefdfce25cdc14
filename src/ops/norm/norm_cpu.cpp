// RMSNorm of rows; statistics and arithmetic are fp32 for every row type.
#define HWY_TARGET_INCLUDE "ops/norm/norm_cpu.cpp"
#include "qft/ops/cpu/kernels.h"

#include <cmath>

#include "../common/vector-inl.h"

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

QFT_TARGET_KERNELS(NormKernels, norm_kernels, &forward_rows<T>, &backward_rows<T>);

}  // namespace HWY_NAMESPACE
}  // namespace qft::ops::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace qft::ops::cpu {
QFT_EXPORT_KERNELS(NormKernels, norm_kernels);
}  // namespace qft::ops::cpu
#endif
