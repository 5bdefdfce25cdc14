// The gated delta net's norm with its gate.
#define HWY_TARGET_INCLUDE "ops/norm/gated_norm_cpu.cpp"
#include "qft/ops/cpu/delta_net_kernels.h"

#include <cmath>

#include "../common/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace qft::ops::cpu {
namespace HWY_NAMESPACE {

template <class T>
void forward_rows(const GatedNorm<T>& a, std::int64_t begin, std::int64_t end) {
  const auto width = static_cast<std::size_t>(a.width);
  for (std::int64_t r = begin; r < end; ++r) {
    const std::int64_t token = r / a.heads, head = r % a.heads;
    const T *x = a.x.row(token, head), *z = a.z.row(token, head);
    T* y = a.y.row(token, head);
    const float squares = sum_over(width, [&](std::size_t i, auto extent, Vec sum) HWY_ATTR {
      const Vec v = load(x + i, extent);
      return hn::MulAdd(v, v, sum);
    });
    a.rstd[r] = 1.0F / std::sqrt(squares / static_cast<float>(width) + a.eps);
    const Vec scale = splat(a.rstd[r]);
    for_vectors(width, [&](std::size_t i, auto extent) HWY_ATTR {
      const Vec gate = load(z + i, extent);
      const Vec normed = hn::Mul(load(a.weight + i, extent), rounded(x, hn::Mul(load(x + i, extent), scale)));
      store(hn::Mul(normed, hn::Mul(gate, sigmoid(gate))), y + i, extent);
    });
  }
}

/// With n = xhat w and xhat = x rstd: gz = gy n silu'(z), gw += gy silu(z) xhat, and gx is the norm's gradient for gy silu(z).
template <class T>
void backward_rows(const GatedNorm<T>& a, float* gweight, std::int64_t begin, std::int64_t end) {
  const auto width = static_cast<std::size_t>(a.width);
  for (std::int64_t r = begin; r < end; ++r) {
    const std::int64_t token = r / a.heads, head = r % a.heads;
    const T *gy = a.gy.row(token, head), *x = a.x.row(token, head), *z = a.z.row(token, head);
    T *gx = a.gx.row(token, head), *gz = a.gz.row(token, head);
    const float s = a.rstd[r];
    const Vec rstd = splat(s);
    const float dot = sum_over(width, [&](std::size_t i, auto extent, Vec sum) HWY_ATTR {
      const Vec v = load(x + i, extent), gate = load(z + i, extent);
      const Vec g = hn::Mul(load(gy + i, extent), hn::Mul(gate, sigmoid(gate)));
      if (gweight != nullptr) store(hn::MulAdd(g, rounded(x, hn::Mul(v, rstd)), load(gweight + i, extent)), gweight + i, extent);
      return hn::MulAdd(hn::Mul(g, load(a.weight + i, extent)), v, sum);
    });
    const Vec share = splat(dot * s * s * s / static_cast<float>(width));
    for_vectors(width, [&](std::size_t i, auto extent) HWY_ATTR {
      const Vec v = load(x + i, extent), gate = load(z + i, extent), open = sigmoid(gate), silu = hn::Mul(gate, open);
      const Vec g = hn::Mul(load(gy + i, extent), load(a.weight + i, extent));
      const Vec slope = hn::MulAdd(silu, hn::Sub(splat(1.0F), open), open);
      const Vec normed = rounded(x, hn::Mul(v, rstd));
      const Vec grad = hn::NegMulAdd(v, share, hn::Mul(hn::Mul(g, silu), rstd));
      store(hn::Mul(hn::Mul(g, normed), slope), gz + i, extent);
      store(grad, gx + i, extent);
    });
  }
}

QFT_TARGET_KERNELS(GatedNormKernels, gated_norm_kernels, &forward_rows<T>, &backward_rows<T>);

}  // namespace HWY_NAMESPACE
}  // namespace qft::ops::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace qft::ops::cpu {
QFT_EXPORT_KERNELS(GatedNormKernels, gated_norm_kernels);
}  // namespace qft::ops::cpu
#endif
