// The last step of a tiled matrix product: scales the fp32 sums, adds the bias and rounds into the result.
#define HWY_TARGET_INCLUDE "ops/linear/store_sums_cpu.cpp"
#include "qft/ops/cpu/kernels.h"

#include "../common/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace qft::ops::cpu {
namespace HWY_NAMESPACE {

void store_with_factors(const StoreSums& a) {
  const Vec scale = splat(a.scale);
  for (std::int64_t r = 0; r < a.rows; ++r) {
    const float* sums = a.sums + r * a.sums_stride;
    Bf16 *out = a.out + r * a.out_stride, *before = a.before + r * a.before_stride;
    for_vectors(static_cast<std::size_t>(a.columns), [&](std::size_t i, auto extent) HWY_ATTR {
      const Vec v = hn::Mul(load(sums + i, extent), scale), bias = a.bias == nullptr ? splat(0.0F) : load(a.bias + i, extent);
      store(v, before + i, extent);
      store(hn::MulAdd(v, load(a.factors + i, extent), bias), out + i, extent);
    });
  }
}

void store_rows(const StoreSums& a) {
  if (a.factors != nullptr) return store_with_factors(a);
  const Vec scale = splat(a.scale);
  for (std::int64_t r = 0; r < a.rows; ++r) {
    const float* sums = a.sums + r * a.sums_stride;
    Bf16* out = a.out + r * a.out_stride;
    for_vectors(static_cast<std::size_t>(a.columns), [&](std::size_t i, auto extent) HWY_ATTR {
      const Bf16* base = a.add ? out : a.bias;
      const Vec before = base == nullptr ? splat(0.0F) : load(base + i, extent);
      store(hn::MulAdd(load(sums + i, extent), scale, before), out + i, extent);
    });
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace qft::ops::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace qft::ops::cpu {

HWY_EXPORT(store_rows);

void store_sums(const StoreSums& args) {
  HWY_DYNAMIC_DISPATCH(store_rows)(args);
}

}  // namespace qft::ops::cpu
#endif
