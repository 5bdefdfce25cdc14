// From tensors on a CUDA device to kernels' element types. For *.cu only.
#pragma once

#include "../ops/tensor_args.h"
#include "launch.cuh"
#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

namespace qft::cuda {

/// Calls f.template operator()<T>() with t's element type and returns true; false where kernels know it not.
template <class F>
bool with_kernel_type(const at::Tensor& t, F f) {
  if (!t.is_cuda()) return false;
  if (t.scalar_type() == at::kFloat) return f.template operator()<float>(), true;
  if (t.scalar_type() == at::kBFloat16) return f.template operator()<c10::BFloat16>(), true;
  if (t.scalar_type() == at::kHalf) return f.template operator()<c10::Half>(), true;
  return false;
}

/// The same for gradients of data of type T: T itself or fp32.
template <class T, class F>
bool with_grad_type(const at::Tensor& grad, F f) {
  if (grad.scalar_type() == c10::CppTypeToScalarType<T>::value) return f.template operator()<T>(), true;
  if (grad.scalar_type() == at::kFloat) return f.template operator()<float>(), true;
  return false;
}

}  // namespace qft::cuda
