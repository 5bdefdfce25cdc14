// LoRA's terms on tensor cores, at the speed of memory: a warp computes 64 tokens by 32 columns, and a lane stores eight
// neighbouring columns at once.
#pragma once

#include "qft/device/rows.cuh"

#include <cstring>

#include "../common/launches_cuda.h"
#ifdef __CUDACC__
#include <cuda_bf16.h>
#endif

namespace qft::ops::cuda {

#ifdef __CUDACC__
template <class T>
constexpr bool kBrain = false;
template <>
inline constexpr bool kBrain<__nv_bfloat16> = true;

/// c [16, 8] += a [16, 8] b [8, 8] of a warp. With g = lane / 4 and t = lane % 4, a lane holds a(g, 2t), a(g, 2t + 1) in a0, the
/// same of row g + 8 in a1, b(2t, g), b(2t + 1, g) in b0, and c(g, 2t), c(g, 2t + 1), c(g + 8, 2t), c(g + 8, 2t + 1).
template <class T>
__device__ void multiply_tiles(float (&c)[4], std::uint32_t a0, std::uint32_t a1, std::uint32_t b0) {
#if __CUDA_ARCH__ >= 800
  if constexpr (kBrain<T>)
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5}, {%6}, {%0,%1,%2,%3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a0), "r"(a1), "r"(b0));
  else
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5}, {%6}, {%0,%1,%2,%3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a0), "r"(a1), "r"(b0));
#endif
}
#endif

constexpr int kTermWarps = 8, kTermRows = 64, kTermColumns = 32;
static_assert(term_blocks(kTermWarps * kTermColumns) == 1 && term_blocks(kTermWarps * kTermColumns + 1) == 2);

/// Returns two elements as the tiles take them.
template <class T>
__device__ std::uint32_t pair_of(const T& low, const T& high) {
  const T both[2] = {low, high};
  std::uint32_t word = 0;
  memcpy(&word, both, sizeof(word));
  return word;
}
template <class T>
__device__ std::uint32_t pair_at(const T* from) {
  return *reinterpret_cast<const std::uint32_t*>(from);
}

template <class T>
__global__ void __launch_bounds__(kTermWarps* device::kWarp) narrow_terms_kernel(NarrowTerms<T> a) {
  int part = 0;
  while (part + 1 < a.count && static_cast<int>(blockIdx.x) >= a.parts[part + 1].first_block) ++part;
  const NarrowPart<T> p = a.parts[part];
  const int lane = threadIdx.x % device::kWarp, warp = threadIdx.x / device::kWarp, g = lane / 4, t = lane % 4;
  const std::int64_t column0 =
      (static_cast<std::int64_t>(blockIdx.x) - p.first_block) * kTermWarps * kTermColumns + warp * kTermColumns;
  const std::int64_t row0 = static_cast<std::int64_t>(blockIdx.y) * kTermRows + g;
  if (column0 >= p.columns) return;
  // Tile j has column (g / 2) * 8 + 2 j + g % 2 in place g, so that a lane's results are columns 8 t to 8 t + 7.
  constexpr int kTiles = kTermColumns / 8, kPiece = 8;
  for (int m = 0; m < kTermRows; m += 16) {
    const std::int64_t first = row0 + m, second = first + 8;
    float c[kTiles][4] = {};
    for (std::int64_t k = 2 * t; k < a.ranks; k += 8) {
      const std::uint32_t a0 = first < a.tokens ? pair_at(p.rows + first * a.row_stride + k) : 0;
      const std::uint32_t a1 = second < a.tokens ? pair_at(p.rows + second * a.row_stride + k) : 0;
      for (int j = 0; j < kTiles; ++j) {
        const std::int64_t column = column0 + g / 2 * 8 + 2 * j + g % 2;
        multiply_tiles<T>(c[j], a0, a1,
                          a.by_rank ? pair_of(p.factor[k * p.columns + column], p.factor[(k + 1) * p.columns + column])
                                    : pair_at(p.factor + column * a.ranks + k));
      }
    }
    for (int half = 0; half < 2; ++half) {
      const std::int64_t row = half == 0 ? first : second;
      if (row >= a.tokens) continue;
      T* const to = p.out + row * a.out_stride + column0 + t * kPiece;
      device::Floats<kPiece> sums = a.add ? device::load<kPiece>(to) : device::Floats<kPiece>{};
      for (int i = 0; i < kPiece; ++i) sums[i] += c[i / 2][half * 2 + i % 2];
      device::store(to, sums);
    }
  }
}

template <class T, class Launch>
void launch_narrow_terms(const NarrowTerms<T>& a, const Launch& launch) {
  const NarrowPart<T>& last = a.parts[a.count - 1];
  const dim3 grid(static_cast<unsigned>(last.first_block + term_blocks(last.columns)),
                  static_cast<unsigned>((a.tokens + kTermRows - 1) / kTermRows));
  launch(device::LaunchShape{grid, dim3(kTermWarps * device::kWarp)}, &narrow_terms_kernel<T>, a);
}

}  // namespace qft::ops::cuda
