// Selects the CPU kernels for a tensor, and splits its rows over threads.
#pragma once

#include "qft/ops/cpu/kernels.h"

#include <algorithm>
#include <cstdint>

#include "tensor_args.h"
#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>

namespace qft::ops::cpu {

/// Below this number of elements a second thread costs more than it gains.
constexpr std::int64_t kElementsPerThread = 16384;

/// Calls f.template operator()<T>() with the kernels' element type for t and returns true; returns false if there is none.
template <class F>
bool with_kernel_type(const at::Tensor& t, F f) {
  if (!t.is_cpu()) return false;
  if (t.scalar_type() == at::kFloat) return f.template operator()<float>(), true;
  if (t.scalar_type() == at::kBFloat16) return f.template operator()<Bf16>(), true;
  return false;
}

/// Calls f(begin, end) over rows of `width` elements, on all threads if there is enough work.
template <class F>
void for_rows(std::int64_t rows, std::int64_t width, const F& f) {
  at::parallel_for(0, rows, std::max<std::int64_t>(1, kElementsPerThread / std::max<std::int64_t>(width, 1)), f);
}

}  // namespace qft::ops::cpu
