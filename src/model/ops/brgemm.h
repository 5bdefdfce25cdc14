// LibTorch's batch-reduce matrix product of small blocks, which the blocked operations are made of. Its
// right-hand side is packed: for Bf16 two successive rows are interleaved element by element (the VNNI
// layout), for float it is plain. A kernel is compiled for each combination of sizes and leading dimensions:
// keep them few.
#pragma once

#include "qft/model/ops/workspace.h"

#include <atomic>
#include <cstdint>

#include "cpu/kernels.h"
#include <ATen/Parallel.h>
#include <ATen/native/CPUBlas.h>

namespace qft::model::ops::blocked {

/// Whether it works here on operands of this dtype; tried once by small products.
bool available(at::ScalarType dtype);

constexpr std::int64_t padded(std::int64_t n, std::int64_t multiple) {
  return (n + multiple - 1) / multiple * multiple;
}

/// c [m, n] = (or +=) a [m, k] b [k, n]; b is packed, its leading dimension counts columns.
inline void product(std::int64_t m, std::int64_t n, std::int64_t k, const float* a, std::int64_t lda,
                    const float* b, std::int64_t ldb, float* c, std::int64_t ldc, bool add) {
  at::native::cpublas::brgemm(m, n, k, lda, ldb, ldc, add, a, b, c, false);
}
inline void product(std::int64_t m, std::int64_t n, std::int64_t k, const cpu::Bf16* a, std::int64_t lda,
                    const cpu::Bf16* b, std::int64_t ldb, float* c, std::int64_t ldc, bool add) {
  at::native::cpublas::brgemm(m, n, k, lda, ldb, ldc, add, reinterpret_cast<const at::BFloat16*>(a),
                              reinterpret_cast<const at::BFloat16*>(b), c, true);
}

/// Calls f(task, thread) for tasks [0, count); threads take the next one when they are done with theirs.
template <class F>
void for_tasks(std::int64_t count, const F& f) {
  std::atomic<std::int64_t> next{0};
  at::parallel_for(0, at::get_num_threads(), 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t thread = begin; thread < end; ++thread)
      for (std::int64_t task = next++; task < count; task = next++) f(task, thread);
    at::native::cpublas::brgemm_release();  // gives up the tile registers that some processors have
  });
}

template <class T>
T* scratch(Workspace& workspace, const char* name, std::int64_t elements) {
  return static_cast<T*>(
      workspace.get(name, {elements * static_cast<std::int64_t>(sizeof(T))}, at::kByte).data_ptr());
}

}  // namespace qft::model::ops::blocked
