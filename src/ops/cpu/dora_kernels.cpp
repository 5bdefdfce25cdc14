// DoRA: norms of adapted rows, outputs times their factors.
// foreach_target.h compiles this file once per instruction set; it must come before the kernels' own headers.
// clang-format off
#include "targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "dora_kernels.cpp"
#include <hwy/foreach_target.h>
#include "qft/ops/cpu/kernels.h"
#include "vector-inl.h"
// clang-format on

#include <cmath>
#include <vector>

HWY_BEFORE_NAMESPACE();
namespace qft::ops::cpu {
namespace HWY_NAMESPACE {

template <class T>
void norm_rows(const DoraNorms<T>& a, std::int64_t begin, std::int64_t end) {
  std::vector<float> b(static_cast<std::size_t>(a.rank));
  for (std::int64_t row = begin; row < end; ++row) {
    const T* weight = a.weight + row * a.width;
    for (std::int64_t r = 0; r < a.rank; ++r) b[static_cast<std::size_t>(r)] = a.scaling * load_one(a.b + row * a.rank + r);
    const float squares = sum_over(static_cast<std::size_t>(a.width), [&](std::size_t i, auto extent, Vec sum) HWY_ATTR {
      Vec v = load(weight + i, extent);
      const T* factor = a.a + i;
      for (const float coefficient : b) {
        v = hn::MulAdd(splat(coefficient), load(factor, extent), v);
        factor += a.width;
      }
      return hn::MulAdd(v, v, sum);
    });
    a.norms[row] = std::sqrt(squares);
  }
}

template <class T>
void forward_rows(const DoraForward<T>& a, std::int64_t begin, std::int64_t end) {
  for (std::int64_t t = begin; t < end; ++t) {
    T *y = a.y + t * a.y_stride, *u = a.u + t * a.u_stride;
    for_vectors(static_cast<std::size_t>(a.width), [&](std::size_t i, auto extent) HWY_ATTR {
      const Vec v = load(y + i, extent), factor = load(a.factor + i, extent);
      store(v, u + i, extent);
      store(a.bias == nullptr ? hn::Mul(v, factor) : hn::MulAdd(v, factor, load(a.bias + i, extent)), y + i, extent);
    });
  }
}

template <class T>
void backward_rows(const DoraBackward<T>& a, float* sums, std::int64_t begin, std::int64_t end) {
  for (std::int64_t t = begin; t < end; ++t) {
    const T *gy = a.gy + t * a.gy_stride, *u = a.u + t * a.u_stride;
    T* gu = a.gu + t * a.gu_stride;
    for_vectors(static_cast<std::size_t>(a.width), [&](std::size_t i, auto extent) HWY_ATTR {
      const Vec g = load(gy + i, extent);
      store(hn::MulAdd(g, load(u + i, extent), load(sums + i, extent)), sums + i, extent);
      store(hn::Mul(g, load(a.factor + i, extent)), gu + i, extent);
    });
  }
}

DoraKernels<float> dora_kernels_f32() {
  return {&norm_rows<float>, &forward_rows<float>, &backward_rows<float>};
}
DoraKernels<Bf16> dora_kernels_bf16() {
  return {&norm_rows<Bf16>, &forward_rows<Bf16>, &backward_rows<Bf16>};
}

}  // namespace HWY_NAMESPACE
}  // namespace qft::ops::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace qft::ops::cpu {

HWY_EXPORT(dora_kernels_f32);
HWY_EXPORT(dora_kernels_bf16);

template <>
DoraKernels<float> dora_kernels() {
  return HWY_DYNAMIC_DISPATCH(dora_kernels_f32)();
}
template <>
DoraKernels<Bf16> dora_kernels() {
  return HWY_DYNAMIC_DISPATCH(dora_kernels_bf16)();
}

}  // namespace qft::ops::cpu
#endif
