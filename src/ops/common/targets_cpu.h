// Disables instruction sets for which the kernels are not compiled; include before Highway.
#pragma once

// SSSE3 gains little over the baseline and costs a compilation. SSE4 covers every x86-64 processor without AVX2; the baseline of
// some compilers handles one element at a time. Arm's SVE does not allow arrays of vectors, which hold the kernels' sums: Arm
// uses NEON, which is as wide as Grace's SVE.
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128)
