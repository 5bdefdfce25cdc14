// LibTorch's batch-reduce matrix product (brgemm) for small tiles, the base of the tiled operations. Its right-hand side is
// packed: Bf16 interleaves two successive rows element by element (the VNNI layout), float stays plain. brgemm compiles one
// kernel per combination of sizes and leading dimensions: keep them few.
#pragma once

#include "qft/ops/cpu/kernels.h"
#include "qft/ops/workspace.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>

#include "../common/flush_denormals_cpu.h"
#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/native/CPUBlas.h>

namespace qft::ops::blocked {

/// Element type of the multiplied tiles. bf16 tensors may be widened to fp32, which represents products of bf16 exactly: many
/// processors multiply fp32 faster than bf16, or do not support bf16.
enum class TileType { bf16, fp32 };
constexpr std::int64_t element_size(TileType tile_type) {
  return tile_type == TileType::fp32 ? 4 : 2;
}
/// True if this processor can multiply such tiles; tested once with small products.
bool available(TileType tile_type);
/// Returns the faster tile type for tensors of this dtype, fp32 or bf16.
TileType preferred_tile_type(at::ScalarType dtype);
/// True if this processor can multiply tensors of this dtype in tiles.
bool available(at::ScalarType dtype);

/// Calls f.template operator()<T, E>(); T: element type of the tensors, E: element type of the tiles.
template <class F>
void with_elements(at::ScalarType dtype, TileType tile_type, const F& f) {
  if (dtype == at::kFloat)
    f.template operator()<float, float>();
  else if (tile_type == TileType::fp32)
    f.template operator()<cpu::Bf16, float>();
  else
    f.template operator()<cpu::Bf16, cpu::Bf16>();
}

constexpr std::int64_t padded(std::int64_t n, std::int64_t multiple) {
  return (n + multiple - 1) / multiple * multiple;
}

/// Row counts of one product. All are multiples of the smallest, so that any number of rows needs few compiled kernels.
inline constexpr std::array<std::int64_t, 4> kRowBlocks = {128, 64, 32, 16};
inline constexpr std::int64_t kRowUnit = kRowBlocks.back();
/// Returns the largest row count that fits into `left` >= kRowUnit rows.
inline std::int64_t row_block(std::int64_t left) {
  return *std::ranges::find_if(kRowBlocks, [left](std::int64_t block) { return block <= left; });
}

/// Enough tasks that threads finish at about the same time.
inline constexpr std::int64_t kTasksPerThread = 4;

inline bool is_bf16(const at::Tensor& t) {
  return t.scalar_type() == at::kBFloat16;
}
/// True if the tiled product supports t's dtype and device.
inline bool supports(const at::Tensor& t) {
  return t.is_cpu() && is_bf16(t) && available(at::kBFloat16);
}
/// True for a matrix with contiguous rows.
inline bool has_contiguous_rows(const at::Tensor& t) {
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

/// Calls f(task, thread) for tasks [0, count); a thread takes the next task when it finishes one.
template <class F>
void for_tasks(std::int64_t count, const F& f) {
  std::atomic<std::int64_t> next{0};
  at::parallel_for(0, at::get_num_threads(), 1, [&](std::int64_t begin, std::int64_t end) {
    const cpu::FlushDenormals flushed;
    for (std::int64_t thread = begin; thread < end; ++thread)
      for (std::int64_t task = next++; task < count; task = next++) f(task, thread);
    at::native::cpublas::brgemm_release();  // frees the AMX tile registers
  });
}

template <class T>
T* scratch(Workspace& workspace, const char* name, std::int64_t elements) {
  return static_cast<T*>(workspace.get(name, {elements * static_cast<std::int64_t>(sizeof(T))}, at::kByte).data_ptr());
}

}  // namespace qft::ops::blocked
