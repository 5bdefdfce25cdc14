// Which instruction sets the kernels are not compiled for; to be included before Highway.
#pragma once

// SSSE3 gains little over the baseline and costs a compilation. SSE4 is what every x86-64 processor without
// AVX2 has; the baseline of some compilers is one element at a time.
#define HWY_DISABLED_TARGETS HWY_SSSE3
