// Maps tensors on a CUDA device to their kernels' element types.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "../ops/common/tensor_args.h"
#include "launch.h"
#include <c10/core/ScalarType.h>

namespace qft::cuda {

template <class T>
constexpr at::ScalarType kScalarType = at::kFloat;
template <>
inline constexpr at::ScalarType kScalarType<__nv_bfloat16> = at::kBFloat16;
template <>
inline constexpr at::ScalarType kScalarType<__half> = at::kHalf;

/// Calls f.template operator()<T>() with t's element type and returns true; returns false for types without kernels.
template <class F>
bool with_kernel_type(const at::Tensor& t, F f) {
  if (!t.is_cuda()) return false;
  if (t.scalar_type() == at::kFloat) return f.template operator()<float>(), true;
  if (t.scalar_type() == at::kBFloat16) return f.template operator()<__nv_bfloat16>(), true;
  if (t.scalar_type() == at::kHalf) return f.template operator()<__half>(), true;
  return false;
}

/// Likewise for gradients of data with type T: T itself or fp32.
template <class T, class F>
bool with_grad_type(const at::Tensor& grad, F f) {
  if (grad.scalar_type() == kScalarType<T>) return f.template operator()<T>(), true;
  if (grad.scalar_type() == at::kFloat) return f.template operator()<float>(), true;
  return false;
}

}  // namespace qft::cuda
