// Sums of rows.
#define HWY_TARGET_INCLUDE "ops/common/add_cpu.cpp"
#include "qft/ops/cpu/kernels.h"

#include "vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace qft::ops::cpu {
namespace HWY_NAMESPACE {

template <class T>
void add(T* to, const T* from, std::int64_t n) {
  for_vectors(static_cast<std::size_t>(n), [&](std::size_t i, auto extent) HWY_ATTR {
    store(hn::Add(load(to + i, extent), load(from + i, extent)), to + i, extent);
  });
}

template <class T>
void add_to_float(float* to, const T* from, float scale, std::int64_t n) {
  const Vec factor = splat(scale);
  for_vectors(static_cast<std::size_t>(n), [&](std::size_t i, auto extent) HWY_ATTR {
    store(hn::MulAdd(load(from + i, extent), factor, load(to + i, extent)), to + i, extent);
  });
}

QFT_TARGET_KERNELS(AddKernels, add_kernels, &add<T>, &add_to_float<T>);

}  // namespace HWY_NAMESPACE
}  // namespace qft::ops::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace qft::ops::cpu {
QFT_EXPORT_KERNELS(AddKernels, add_kernels);
}  // namespace qft::ops::cpu
#endif
