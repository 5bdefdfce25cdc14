// Products of a weight matrix with a few rows; limited by memory bandwidth.
#define HWY_TARGET_INCLUDE "ops/linear/gemv_cpu.cpp"
#include "qft/ops/cpu/kernels.h"

#include "../common/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace qft::ops::cpu {
namespace HWY_NAMESPACE {

/// Rows of x at a time: their sums must stay in registers. AVX-512 has 32 registers, AVX2 has 16.
#if HWY_TARGET <= HWY_AVX3
constexpr int kTokens = 4;
#else
constexpr int kTokens = 2;
#endif

/// Dot products of one weight row with `Tokens` rows of x. Reads one weight row from end to end: several at once would be several
/// short streams, which the processor prefetches badly. Four independent sums hide the latency of additions. There are four for
/// every value of `Tokens`, so a row's result does not depend on the other rows.
template <int Tokens, class T>
HWY_INLINE void dot_row(const Gemv<T>& a, std::int64_t n, std::int64_t token) {
  constexpr int kSums = 4;
  Vec sums[Tokens][kSums];
  for (auto& of_token : sums)
    for (Vec& sum : of_token) sum = splat(0.0F);
  const T* w = a.weight + n * a.weight_stride;
  const float* x = a.x + token * a.width;
  const auto width = static_cast<std::size_t>(a.width), lanes = hn::Lanes(Floats());
  std::size_t i = 0;
  for (; i + kSums * lanes <= width; i += kSums * lanes)
    for (int s = 0; s < kSums; ++s) {
      const Vec weight = load(w + i + s * lanes);
      for (int t = 0; t < Tokens; ++t) sums[t][s] = hn::MulAdd(weight, load(x + t * a.width + i + s * lanes), sums[t][s]);
    }
  for_vectors(width - i, [&](std::size_t j, auto extent) HWY_ATTR {
    const Vec weight = load(w + i + j, extent);
    for (int t = 0; t < Tokens; ++t) sums[t][0] = hn::MulAdd(weight, load(x + t * a.width + i + j, extent), sums[t][0]);
  });
  for (int t = 0; t < Tokens; ++t) {
    for (int s = 1; s < kSums; ++s) sums[t][0] = hn::Add(sums[t][0], sums[t][s]);
    T* y = a.y + (token + t) * a.y_stride + n;
    const float base = a.add ? load_one(y) : a.bias == nullptr ? 0.0F : load_one(a.bias + n);
    store_one(a.scale * sum_of(sums[t][0]) + base, y);
  }
}

template <class T>
void gemv_rows(const Gemv<T>& a, std::int64_t begin, std::int64_t end) {
  for (std::int64_t n = begin; n < end; ++n) {
    std::int64_t token = 0;
    for (; token + kTokens <= a.tokens; token += kTokens) dot_row<kTokens>(a, n, token);
    for (; token + 2 <= a.tokens; token += 2) dot_row<2>(a, n, token);
    if (token < a.tokens) dot_row<1>(a, n, token);
  }
}

QFT_TARGET_KERNELS(GemvKernels, gemv_kernels, &gemv_rows<T>);

}  // namespace HWY_NAMESPACE
}  // namespace qft::ops::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace qft::ops::cpu {
QFT_EXPORT_KERNELS(GemvKernels, gemv_kernels);
}  // namespace qft::ops::cpu
#endif
