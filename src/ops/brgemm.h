// LibTorch's batch-reduce matrix product of small blocks, which the blocked operations are made of. Its
// right-hand side is packed: for Bf16 two successive rows are interleaved element by element (the VNNI
// layout), for float it is plain. A kernel is compiled for each combination of sizes and leading dimensions:
// keep them few.
#pragma once

#include "qft/ops/cpu/kernels.h"
#include "qft/ops/workspace.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>

#include "cpu/flush_denormals.h"
#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/native/CPUBlas.h>

namespace qft::ops::blocked {

/// Elements of the blocks that are multiplied. Those of bf16 tensors may be widened to fp32, which holds the products of
/// bf16 exactly: many processors multiply that faster than bf16, or have no bf16 at all.
enum class Blocks { bf16, fp32 };
constexpr std::int64_t element_size(Blocks blocks) {
  return blocks == Blocks::fp32 ? 4 : 2;
}
/// Whether such blocks can be multiplied here; tried once by small products.
bool available(Blocks blocks);
/// The faster ones here for tensors of this dtype, fp32 or bf16.
Blocks faster_blocks(at::ScalarType dtype);
/// Whether tensors of this dtype can be multiplied by blocks here.
bool available(at::ScalarType dtype);

/// Calls f.template operator()<T, E>(): T are the elements of tensors of this dtype, E those of blocks.
template <class F>
void with_elements(at::ScalarType dtype, Blocks blocks, const F& f) {
  if (dtype == at::kFloat)
    f.template operator()<float, float>();
  else if (blocks == Blocks::fp32)
    f.template operator()<cpu::Bf16, float>();
  else
    f.template operator()<cpu::Bf16, cpu::Bf16>();
}

constexpr std::int64_t padded(std::int64_t n, std::int64_t multiple) {
  return (n + multiple - 1) / multiple * multiple;
}

/// Rows of one product, and the least of them. All are multiples of it: whatever the number of rows, few kernels are compiled.
inline constexpr std::array<std::int64_t, 4> kRowBlocks = {128, 64, 32, 16};
inline constexpr std::int64_t kRowUnit = kRowBlocks.back();
/// The largest of them for `left` >= kRowUnit rows.
inline std::int64_t row_block(std::int64_t left) {
  return *std::ranges::find_if(kRowBlocks, [left](std::int64_t block) { return block <= left; });
}

/// So many that threads end at about the same time.
inline constexpr std::int64_t kTasksPerThread = 4;

inline bool is_bf16(const at::Tensor& t) {
  return t.scalar_type() == at::kBFloat16;
}
/// Whether tensors of t's type and device are multiplied here.
inline bool serves(const at::Tensor& t) {
  return t.is_cpu() && is_bf16(t) && available(at::kBFloat16);
}
/// Whether it is a matrix whose rows are of successive elements.
inline bool has_rows(const at::Tensor& t) {
  return t.dim() == 2 && (t.stride(1) == 1 || t.size(1) == 1);
}

/// c [m, n] = (or +=) a [m, k] b [k, n]; b is packed, its leading dimension counts columns.
inline void product(std::int64_t m, std::int64_t n, std::int64_t k, const float* a, std::int64_t lda, const float* b,
                    std::int64_t ldb, float* c, std::int64_t ldc, bool add) {
  at::native::cpublas::brgemm(m, n, k, lda, ldb, ldc, add, a, b, c, false);
}
inline void product(std::int64_t m, std::int64_t n, std::int64_t k, const cpu::Bf16* a, std::int64_t lda, const cpu::Bf16* b,
                    std::int64_t ldb, float* c, std::int64_t ldc, bool add) {
  at::native::cpublas::brgemm(m, n, k, lda, ldb, ldc, add, reinterpret_cast<const at::BFloat16*>(a),
                              reinterpret_cast<const at::BFloat16*>(b), c, true);
}

/// Calls f(task, thread) for tasks [0, count); threads take the next one when they are done with theirs.
template <class F>
void for_tasks(std::int64_t count, const F& f) {
  std::atomic<std::int64_t> next{0};
  at::parallel_for(0, at::get_num_threads(), 1, [&](std::int64_t begin, std::int64_t end) {
    const cpu::FlushDenormals flushed;
    for (std::int64_t thread = begin; thread < end; ++thread)
      for (std::int64_t task = next++; task < count; task = next++) f(task, thread);
    at::native::cpublas::brgemm_release();  // gives up the tile registers that some processors have
  });
}

template <class T>
T* scratch(Workspace& workspace, const char* name, std::int64_t elements) {
  return static_cast<T*>(workspace.get(name, {elements * static_cast<std::int64_t>(sizeof(T))}, at::kByte).data_ptr());
}

}  // namespace qft::ops::blocked
