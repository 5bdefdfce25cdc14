// QFT_CPU_ISA=baseline|avx2|avx512 limits our own CPU kernels to older instructions, so that one machine can reproduce the
// results of others. Read once at program start. LibTorch has ATEN_CPU_CAPABILITY and ONEDNN_MAX_CPU_ISA.
#pragma once

namespace qft::ops {

/// True if the environment limits the kernels. Calling this also keeps the linker from dropping the code that reads the variable.
bool instruction_sets_are_held();

}  // namespace qft::ops
