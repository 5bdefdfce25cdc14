// Log-softmax of the label token and its gradient, one row of logits at a time.
#define HWY_TARGET_INCLUDE "ops/head/cross_entropy_cpu.cpp"
#include "qft/ops/cpu/kernels.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "../common/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace qft::ops::cpu {
namespace HWY_NAMESPACE {

/// Logits per block, so that the sum finds in cache what the maximum has read.
constexpr std::int64_t kBlock = 4096;

inline float value_at(const float* p) {
  return *p;
}
inline float value_at(const Bf16* p) {
  return hn::GetLane(load(p, Part{1}));
}

/// Of a row of logits.
struct MaximumAndSum {
  float maximum;
  double sum;  ///< of exp(logit - maximum)
  float log_sum_exp() const { return maximum + static_cast<float>(std::log(sum)); }
};

/// Rescales the running sum when a block raises the maximum.
template <class T>
MaximumAndSum maximum_and_sum(const T* logits, std::int64_t n) {
  const Vec least = splat(-std::numeric_limits<float>::infinity());
  float maximum = -std::numeric_limits<float>::infinity();
  double sum = 0;
  for (std::int64_t first = 0; first < n; first += kBlock) {
    const T* block = logits + first;
    const auto count = static_cast<std::size_t>(std::min(kBlock, n - first));
    Vec m = least;
    for_vectors(count, [&](std::size_t i, auto extent) HWY_ATTR { m = hn::Max(m, load_or(block + i, extent, least)); });
    const float raised = std::max(maximum, max_of(m));
    if (raised > maximum) sum *= std::exp(static_cast<double>(maximum) - raised);
    maximum = raised;
    const Vec scale = splat(kLog2E), shift = splat(maximum);
    Vec total = splat(0.0F);
    for_vectors(count, [&](std::size_t i, auto extent) HWY_ATTR {
      const Vec z = hn::Sub(load_or(block + i, extent, least), shift);
      total = hn::Add(total, exp2(hn::Mul(z, scale)));
    });
    sum += sum_of(total);
  }
  return {maximum, sum};
}

/// Overwrites logits with -g * softmax.
template <class T>
void write_gradient(T* logits, std::int64_t n, float g, float lse) {
  const Vec shift = splat(lse), scale = splat(kLog2E), minus_g = splat(-g);
  for_vectors(static_cast<std::size_t>(n), [&](std::size_t i, auto extent) HWY_ATTR {
    const Vec p = exp2(hn::Mul(hn::Sub(load(logits + i, extent), shift), scale));
    store(hn::Mul(minus_g, p), logits + i, extent);
  });
}

template <class T>
void cross_entropy_rows(const CrossEntropy<T>& a, std::int64_t begin, std::int64_t end) {
  for (std::int64_t r = begin; r < end; ++r) {
    T* logits = a.logits + r * a.vocab;
    T* target = logits + a.targets[r];
    const float lse = maximum_and_sum(logits, a.vocab).log_sum_exp(), logprob = value_at(target) - lse;
    if (a.logprobs != nullptr) a.logprobs[r] = logprob;
    if (a.grad == nullptr) continue;
    const float g = a.grad[r];
    write_gradient(logits, a.vocab, g, lse);
    store(splat(g - g * std::exp(logprob)), target, Part{1});
  }
}

template <class T>
void softmax_statistics_rows(const SoftmaxStatistics<T>& a, std::int64_t begin, std::int64_t end) {
  for (std::int64_t r = begin; r < end; ++r) {
    const T* logits = a.logits + r * a.count;
    const auto [maximum, sum] = maximum_and_sum(logits, a.count);
    const std::int64_t column = a.targets[r] - a.first;
    a.maxima[r] = maximum;
    a.sums[r] = static_cast<float>(sum);
    a.at_targets[r] = column >= 0 && column < a.count ? value_at(logits + column) : 0.0F;
  }
}

template <class T>
void softmax_gradient_rows(const SoftmaxGradient<T>& a, std::int64_t begin, std::int64_t end) {
  for (std::int64_t r = begin; r < end; ++r) {
    T* logits = a.logits + r * a.count;
    const std::int64_t column = a.targets[r] - a.first;
    const bool here = column >= 0 && column < a.count;
    const float g = a.grad[r], lse = a.lse[r], logprob = here ? value_at(logits + column) - lse : 0.0F;
    write_gradient(logits, a.count, g, lse);
    if (here) store(splat(g - g * std::exp(logprob)), logits + column, Part{1});
  }
}

QFT_TARGET_KERNELS(CrossEntropyKernels, cross_entropy_kernels, &cross_entropy_rows<T>, &softmax_statistics_rows<T>,
                   &softmax_gradient_rows<T>);

}  // namespace HWY_NAMESPACE
}  // namespace qft::ops::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace qft::ops::cpu {
QFT_EXPORT_KERNELS(CrossEntropyKernels, cross_entropy_kernels);
}  // namespace qft::ops::cpu
#endif
