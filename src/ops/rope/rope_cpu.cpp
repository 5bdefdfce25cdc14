// Rotary embedding.
#define HWY_TARGET_INCLUDE "ops/rope/rope_cpu.cpp"
#include "qft/ops/cpu/kernels.h"

#include "../common/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace qft::ops::cpu {
namespace HWY_NAMESPACE {

template <class T>
void rope_rows(const Rope<T>& a, std::int64_t begin, std::int64_t end) {
  const Vec sign = splat(a.sign);
  for (std::int64_t t = begin; t < end; ++t) {
    const float *cos = a.cos + a.positions[t] * a.half, *sin = a.sin + a.positions[t] * a.half;
    for (std::int64_t h = 0; h < a.heads; ++h) {
      T *first = a.x.row(t, h), *second = first + a.half;
      for_vectors(static_cast<std::size_t>(a.half), [&](std::size_t i, auto extent) HWY_ATTR {
        const Vec c = load(cos + i, extent), s = hn::Mul(sign, load(sin + i, extent));
        const Vec x = load(first + i, extent), y = load(second + i, extent);
        store(hn::NegMulAdd(y, s, hn::Mul(x, c)), first + i, extent);
        store(hn::MulAdd(x, s, hn::Mul(y, c)), second + i, extent);
      });
    }
  }
}

QFT_TARGET_KERNELS(RopeKernels, rope_kernels, &rope_rows<T>);

}  // namespace HWY_NAMESPACE
}  // namespace qft::ops::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace qft::ops::cpu {
QFT_EXPORT_KERNELS(RopeKernels, rope_kernels);
}  // namespace qft::ops::cpu
#endif
