// QFT_CPU_ISA=baseline|avx2|avx512: our own kernels for the CPU use no newer instructions, so that one machine shows what
// others compute. Read once, when the program starts. LibTorch has ATEN_CPU_CAPABILITY and ONEDNN_MAX_CPU_ISA.
#pragma once

namespace qft::ops {

/// Whether the environment holds kernels back. Also keeps the reading of it from being left out by the linker.
bool instruction_sets_are_held();

}  // namespace qft::ops
