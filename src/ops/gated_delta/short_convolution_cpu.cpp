// The gated delta net's short convolution.
#define HWY_TARGET_INCLUDE "ops/gated_delta/short_convolution_cpu.cpp"
#include "qft/ops/cpu/delta_net_kernels.h"
#include "qft/ops/short_convolution.h"

#include "../common/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace qft::ops::cpu {
namespace HWY_NAMESPACE {

/// The rows that token t sees, the oldest first; null for rows before the sequence.
template <class T>
struct Seen {
  const T* rows[kMaxTaps];
  Seen(const ShortConvolution<T>& a, std::int64_t t) {
    for (std::int64_t i = 0; i < a.taps; ++i) {
      const std::int64_t r = t - (a.taps - 1) + i;
      if (r >= 0)
        rows[i] = a.x + r * a.x_stride;
      else
        rows[i] = a.before == nullptr ? nullptr : a.before + (r + a.taps - 1) * a.channels;
    }
  }
};

/// Returns the filter's sum for a token at channels c... A zero row and a missing row give the same bits, because the sum starts
/// with +0.
template <class T, class E>
HWY_INLINE Vec convolved(const ShortConvolution<T>& a, const Seen<T>& seen, std::int64_t c, E extent) {
  Vec sum = splat(0.0F);
  for (std::int64_t i = 0; i < a.taps; ++i)
    if (seen.rows[i] != nullptr)
      sum = hn::MulAdd(load(a.weight + i * a.channels + c, extent), load(seen.rows[i] + c, extent), sum);
  return sum;
}

template <class T>
void convolve(const ShortConvolution<T>& a, std::int64_t begin, std::int64_t end) {
  for (std::int64_t t = begin; t < end; ++t) {
    const Seen<T> seen(a, t);
    T* y = a.y + t * a.y_stride;
    for_vectors(static_cast<std::size_t>(a.channels), [&](std::size_t c, auto extent) HWY_ATTR {
      const Vec z = convolved(a, seen, static_cast<std::int64_t>(c), extent);
      store(hn::Mul(z, sigmoid(z)), y + c, extent);
    });
  }
}

/// Walks from the last token back. A ring holds gz of the `taps` tokens from t on, in row t % taps.
template <class T>
void convolve_backward(const ShortConvolution<T>& a, std::int64_t begin, std::int64_t end) {
  float ring[kMaxTaps][kConvolutionChannels] = {};
  for (std::int64_t t = a.tokens - 1; t >= 0; --t) {
    const Seen<T> seen(a, t);
    float* newest = ring[t % a.taps];
    for_vectors(static_cast<std::size_t>(end - begin), [&](std::size_t i, auto extent) HWY_ATTR {
      const std::int64_t c = begin + static_cast<std::int64_t>(i);
      const Vec z = convolved(a, seen, c, extent), s = sigmoid(z);
      // silu'(z) = s + z s (1 - s)
      const Vec slope = hn::MulAdd(hn::Mul(z, s), hn::Sub(splat(1.0F), s), s);
      const Vec gz = hn::Mul(load(a.gy + t * a.gy_stride + c, extent), slope);
      store(gz, newest + i, extent);
      Vec gx = splat(0.0F);
      for (std::int64_t k = 0; k < a.taps; ++k) {
        const std::int64_t reader = t + a.taps - 1 - k;  // t is tap k of this token
        if (reader < a.tokens)
          gx = hn::MulAdd(load(a.weight + k * a.channels + c, extent), load(ring[reader % a.taps] + i, extent), gx);
        if (a.gweight != nullptr && seen.rows[k] != nullptr) {
          float* sum = a.gweight + k * a.channels + c;
          store(hn::MulAdd(gz, load(seen.rows[k] + c, extent), load(sum, extent)), sum, extent);
        }
      }
      store(gx, a.gx + t * a.gx_stride + c, extent);
    });
  }
}

QFT_TARGET_KERNELS(ConvolutionKernels, convolution_kernels, &convolve<T>, &convolve_backward<T>);

}  // namespace HWY_NAMESPACE
}  // namespace qft::ops::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace qft::ops::cpu {
QFT_EXPORT_KERNELS(ConvolutionKernels, convolution_kernels);
}  // namespace qft::ops::cpu
#endif
