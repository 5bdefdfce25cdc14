// CPU kernels of the gated delta net. T is float or Bf16; arithmetic is fp32.
#pragma once

#include "qft/ops/cpu/kernels.h"
#include "qft/ops/kernel_args.h"

#include <cstdint>

namespace qft::ops::cpu {

/// Rows of one sequence, channels [0, channels).
template <class T>
struct ShortConvolution {
  const T* x;
  const T* before;      ///< [taps - 1, channels]: the rows before x, or null: zeros
  const float* weight;  ///< [taps, channels]
  T* y;                 ///< forward
  const T* gy;          ///< backward
  T* gx;                ///< may be gy
  float* gweight;       ///< [taps, channels] or null
  std::int64_t x_stride, y_stride, gy_stride, gx_stride;
  std::int64_t tokens, channels, taps;
};
template <class T>
struct ConvolutionKernels {
  void (*forward)(const ShortConvolution<T>& args, std::int64_t begin, std::int64_t end);  ///< of the tokens
  /// Of channels [begin, end), at most kConvolutionChannels; adds to gweight if it is not null.
  void (*backward)(const ShortConvolution<T>& args, std::int64_t begin, std::int64_t end);
};
inline constexpr std::int64_t kConvolutionChannels = 64;
template <class T>
ConvolutionKernels<T> convolution_kernels();

template <class T>
struct GatedNorm {
  HeadRows<const T> x, z, gy;
  HeadRows<T> y, gx, gz;
  const T* weight;
  float* rstd;
  std::int64_t heads, width;
  float eps;
};
template <class T>
struct GatedNormKernels {
  void (*forward)(const GatedNorm<T>& args, std::int64_t begin, std::int64_t end);
  /// Adds to gweight [width] if it is not null.
  void (*backward)(const GatedNorm<T>& args, float* gweight, std::int64_t begin, std::int64_t end);
};
template <class T>
GatedNormKernels<T> gated_norm_kernels();

}  // namespace qft::ops::cpu
