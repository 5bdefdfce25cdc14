// From tensors to the kernels' plain rows.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels.h"
#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>

namespace qft::model::ops::cpu {

/// Elements below which a second thread costs more than it brings.
constexpr std::int64_t kElementsPerThread = 16384;

template <class T>
T* data(const at::Tensor& t) {
  return t.defined() ? static_cast<T*>(t.data_ptr()) : nullptr;
}
template <class T>
const T* const_data(const at::Tensor& t) {
  return t.defined() ? static_cast<const T*>(t.const_data_ptr()) : nullptr;
}

/// Rows [T, D] (one head) or [T, heads, D] of a tensor with unit stride in the last dimension.
template <class T>
HeadRows<T> head_rows(const at::Tensor& t) {
  if (!t.defined()) return {};
  return {static_cast<T*>(const_cast<void*>(t.const_data_ptr())), t.stride(0),
          t.dim() == 3 ? t.stride(1) : 0};
}

/// Calls f.template operator()<T>() with the kernels' type for t and returns true; false where there is none.
template <class F>
bool with_kernel_type(const at::Tensor& t, F f) {
  if (!t.is_cpu()) return false;
  if (t.scalar_type() == at::kFloat) return f.template operator()<float>(), true;
  if (t.scalar_type() == at::kBFloat16) return f.template operator()<Bf16>(), true;
  return false;
}

/// f(begin, end) over rows of `width` elements, on all threads if that pays.
template <class F>
void for_rows(std::int64_t rows, std::int64_t width, const F& f) {
  at::parallel_for(0, rows, std::max<std::int64_t>(1, kElementsPerThread / std::max<std::int64_t>(width, 1)),
                   f);
}

}  // namespace qft::model::ops::cpu
