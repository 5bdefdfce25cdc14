// Compiles a kernel file once for each instruction set, and publishes its kernels. The file defines HWY_TARGET_INCLUDE as its own
// path before its first #include. vector-inl.h includes this header.
#pragma once

#include "instruction_sets.h"

// SSSE3 gains little over the baseline and costs a compilation. SSE4 covers every x86-64 processor without AVX2; the baseline of
// some compilers handles one element at a time. Arm's SVE does not allow arrays of vectors, which hold the kernels' sums: Arm
// uses NEON, which is as wide as Grace's SVE.
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128)

/// Last in HWY_NAMESPACE: defines the kernels for float and Bf16 rows. The arguments after `name` initialise a Kernels<T>.
#define QFT_TARGET_KERNELS(Kernels, name, ...) \
  Kernels<float> name##_f32() {                \
    using T = float;                           \
    return {__VA_ARGS__};                      \
  }                                            \
  Kernels<Bf16> name##_bf16() {                \
    using T = Bf16;                            \
    return {__VA_ARGS__};                      \
  }                                            \
  static_assert(true)

/// In qft::ops::cpu, if HWY_ONCE: defines name<float>() and name<Bf16>(), which return the kernels for the fastest instruction
/// set that the processor has and QFT_CPU_ISA allows.
#define QFT_EXPORT_KERNELS(Kernels, name)       \
  HWY_EXPORT(name##_f32);                       \
  HWY_EXPORT(name##_bf16);                      \
  template <>                                   \
  Kernels<float> name() {                       \
    instruction_sets_are_held();                \
    return HWY_DYNAMIC_DISPATCH(name##_f32)();  \
  }                                             \
  template <>                                   \
  Kernels<Bf16> name() {                        \
    instruction_sets_are_held();                \
    return HWY_DYNAMIC_DISPATCH(name##_bf16)(); \
  }                                             \
  static_assert(true)

#include <hwy/foreach_target.h>  // last, because it compiles the file that uses these macros; must come before highway.h
