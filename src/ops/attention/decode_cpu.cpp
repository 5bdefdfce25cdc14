// Attention of one query over cached keys and values.
#define HWY_TARGET_INCLUDE "ops/attention/decode_cpu.cpp"
#include "qft/ops/cpu/kernels.h"

#include "../common/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace qft::ops::cpu {
namespace HWY_NAMESPACE {

template <class T>
HWY_INLINE float dot(const T* a, const T* b, std::size_t n) {
  Vec sum = splat(0.0F);
  for_vectors(n, [&](std::size_t i, auto extent) HWY_ATTR { sum = hn::MulAdd(load(a + i, extent), load(b + i, extent), sum); });
  return sum_of(sum);
}

/// Turns scores into weights with sum 1.
HWY_INLINE void softmax(float* scores, std::size_t n) {
  Vec most = splat(scores[0]), sum = splat(0.0F);
  for_vectors(n, [&](std::size_t i, auto extent) HWY_ATTR { most = hn::Max(most, load_or(scores + i, extent, most)); });
  const Vec top = splat(max_of(most));
  for_vectors(n, [&](std::size_t i, auto extent) HWY_ATTR {
    const Vec weight = exp(hn::Sub(load_or(scores + i, extent, splat(-1e30F)), top));
    store(weight, scores + i, extent);
    sum = hn::Add(sum, weight);
  });
  const Vec factor = splat(1.0F / sum_of(sum));
  for_vectors(n,
              [&](std::size_t i, auto extent) HWY_ATTR { store(hn::Mul(factor, load(scores + i, extent)), scores + i, extent); });
}

template <class T>
void decode_heads(const DecodeAttention<T>& a, std::int64_t begin, std::int64_t end) {
  const auto width = static_cast<std::size_t>(a.head_dim);
  for (std::int64_t h = begin; h < end; ++h) {
    const T *q = a.q + h * a.head_dim, *keys = a.keys + h / a.group * a.kv_stride, *values = a.values + h / a.group * a.kv_stride;
    float* scores = a.scores + h * a.tokens;
    for (std::int64_t t = 0; t < a.tokens; ++t) scores[t] = a.scale * dot(q, keys + t * a.head_dim, width);
    softmax(scores, static_cast<std::size_t>(a.tokens));
    for_vectors(width, [&](std::size_t i, auto extent) HWY_ATTR {
      Vec sum = splat(0.0F);
      for (std::int64_t t = 0; t < a.tokens; ++t)
        sum = hn::MulAdd(splat(scores[t]), load(values + t * a.head_dim + i, extent), sum);
      store(sum, a.out + h * a.head_dim + i, extent);
    });
  }
}

QFT_TARGET_KERNELS(DecodeKernels, decode_kernels, &decode_heads<T>);

}  // namespace HWY_NAMESPACE
}  // namespace qft::ops::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace qft::ops::cpu {
QFT_EXPORT_KERNELS(DecodeKernels, decode_kernels);
}  // namespace qft::ops::cpu
#endif
