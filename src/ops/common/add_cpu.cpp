// Sums of rows.
// foreach_target.h compiles this file once per instruction set; it must come before the kernels' own headers.
// clang-format off
#include "../common/targets_cpu.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/common/add_cpu.cpp"
#include <hwy/foreach_target.h>
#include "instruction_sets.h"
#include "qft/ops/cpu/kernels.h"
#include "vector-inl.h"
// clang-format on

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

AddKernels<float> add_kernels_f32() {
  return {&add<float>, &add_to_float<float>};
}
AddKernels<Bf16> add_kernels_bf16() {
  return {&add<Bf16>, &add_to_float<Bf16>};
}

}  // namespace HWY_NAMESPACE
}  // namespace qft::ops::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace qft::ops::cpu {

HWY_EXPORT(add_kernels_f32);
HWY_EXPORT(add_kernels_bf16);

template <>
AddKernels<float> add_kernels() {
  instruction_sets_are_held();  // otherwise programs that only use these kernels would not read QFT_CPU_ISA
  return HWY_DYNAMIC_DISPATCH(add_kernels_f32)();
}
template <>
AddKernels<Bf16> add_kernels() {
  return HWY_DYNAMIC_DISPATCH(add_kernels_bf16)();
}

}  // namespace qft::ops::cpu
#endif
