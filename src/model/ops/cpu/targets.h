// Which instruction sets the kernels are not compiled for; to be included before Highway.
#pragma once

// SSE4 and SSSE3 gain little over the baseline and cost a compilation each.
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SSE4)
