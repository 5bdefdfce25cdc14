// Which instruction sets the kernels are not compiled for; to be included before Highway.
#pragma once

// SSSE3 gains little over the baseline and costs a compilation. SSE4 is what every x86-64 processor without
// AVX2 has; the baseline of some compilers is one element at a time. Arm's SVE has no arrays of vectors, which the kernels keep
// their sums in: there it is NEON, as wide as Grace's SVE is.
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128)
