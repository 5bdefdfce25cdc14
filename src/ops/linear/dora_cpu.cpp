// DoRA: norms of adapted rows, and outputs times their factors.
#define HWY_TARGET_INCLUDE "ops/linear/dora_cpu.cpp"
#include "qft/ops/cpu/kernels.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "../common/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace qft::ops::cpu {
namespace HWY_NAMESPACE {

/// Computes the norms of kRows rows together, so that each vector of A is read and widened once for all. b: scaling * B for these
/// rows.
template <class T, std::int64_t kRows>
void norm_block(const DoraNorms<T>& a, std::int64_t row, const float* b) {
  constexpr std::size_t kSums = kMaxLanes / hn::MaxLanes(Floats());  // as in sum_over()
  Vec sums[kRows][kSums];
  for (auto& of_row : sums)
    for (Vec& sum : of_row) sum = splat(0.0F);
  std::size_t next = 0;
  for_vectors(static_cast<std::size_t>(a.width), [&](std::size_t i, auto extent) HWY_ATTR {
    Vec v[kRows];
    for (std::int64_t k = 0; k < kRows; ++k) v[k] = load(a.weight + (row + k) * a.width + i, extent);
    for (std::int64_t r = 0; r < a.rank; ++r) {
      const Vec factor = load(a.a + r * a.width + i, extent);
      for (std::int64_t k = 0; k < kRows; ++k) v[k] = hn::MulAdd(splat(b[k * a.rank + r]), factor, v[k]);
    }
    for (std::int64_t k = 0; k < kRows; ++k) sums[k][next] = hn::MulAdd(v[k], v[k], sums[k][next]);
    next = (next + 1) % kSums;
  });
  for (std::int64_t k = 0; k < kRows; ++k) {
    for (std::size_t left = kSums / 2; left > 0; left /= 2)
      for (std::size_t j = 0; j < left; ++j) sums[k][j] = hn::Add(sums[k][j], sums[k][j + left]);
    a.norms[row + k] = std::sqrt(sum_of(sums[k][0]));
  }
}

template <class T>
void norm_rows(const DoraNorms<T>& a, std::int64_t begin, std::int64_t end) {
  constexpr std::int64_t kBlock = 4;
  std::vector<float> b(static_cast<std::size_t>(kBlock * a.rank));
  for (std::int64_t row = begin; row < end;) {
    const std::int64_t rows = end - row >= kBlock ? kBlock : 1;
    for (std::int64_t i = 0; i < rows * a.rank; ++i)
      b[static_cast<std::size_t>(i)] = a.scaling * load_one(a.b + row * a.rank + i);
    if (rows == kBlock)
      norm_block<T, kBlock>(a, row, b.data());
    else
      norm_block<T, 1>(a, row, b.data());
    row += rows;
  }
}

template <class T>
void forward_rows(const DoraForward<T>& a, std::int64_t begin, std::int64_t end) {
  for (std::int64_t t = begin; t < end; ++t) {
    T *y = a.y + t * a.y_stride, *u = a.u + t * a.u_stride;
    for_vectors(static_cast<std::size_t>(a.width), [&](std::size_t i, auto extent) HWY_ATTR {
      const Vec v = load(y + i, extent), factor = load(a.factor + i, extent);
      store(v, u + i, extent);
      store(a.bias == nullptr ? hn::Mul(v, factor) : hn::MulAdd(v, factor, load(a.bias + i, extent)), y + i, extent);
    });
  }
}

template <class T>
void backward_rows(const DoraBackward<T>& a, float* sums, std::int64_t begin, std::int64_t end) {
  constexpr std::int64_t kTokens = 4;  // tokens that share one load of factors and sums
  for (std::int64_t first = begin; first < end; first += kTokens) {
    const std::int64_t tokens = std::min(kTokens, end - first);
    const T *gy = a.gy + first * a.gy_stride, *u = a.u + first * a.u_stride;
    T* gu = a.gu + first * a.gu_stride;
    for_vectors(static_cast<std::size_t>(a.width), [&](std::size_t i, auto extent) HWY_ATTR {
      const Vec factor = load(a.factor + i, extent);
      Vec sum = load(sums + i, extent);
      for (std::int64_t t = 0; t < tokens; ++t) {
        const Vec g = load(gy + t * a.gy_stride + i, extent);
        sum = hn::MulAdd(g, load(u + t * a.u_stride + i, extent), sum);
        store(hn::Mul(g, factor), gu + t * a.gu_stride + i, extent);
      }
      store(sum, sums + i, extent);
    });
  }
}

QFT_TARGET_KERNELS(DoraKernels, dora_kernels, &norm_rows<T>, &forward_rows<T>, &backward_rows<T>);

}  // namespace HWY_NAMESPACE
}  // namespace qft::ops::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace qft::ops::cpu {
QFT_EXPORT_KERNELS(DoraKernels, dora_kernels);
}  // namespace qft::ops::cpu
#endif
