// The four element types of a run.
#pragma once

#include <c10/core/ScalarType.h>

namespace qft::optim {

struct Precision {
  at::ScalarType compute = at::kFloat;  ///< weights and activations
  at::ScalarType master = at::kFloat;   ///< weights that the optimizer updates; if equal to compute, there is no second copy
  at::ScalarType grad = at::kFloat;     ///< accumulation of gradients (always reduced in fp32 or wider)
  at::ScalarType state = at::kFloat;    ///< the optimizer's state

  bool has_master_copy() const { return master != compute; }

  static Precision fp64() { return {at::kDouble, at::kDouble, at::kDouble, at::kDouble}; }
  static Precision fp32() { return {}; }
  /// bf16 weights and compute; fp32 masters, gradients and optimizer state.
  static Precision bf16() { return {at::kBFloat16, at::kFloat, at::kFloat, at::kFloat}; }
  /// fp16 weights and compute, with loss scaling; fp32 masters, gradients and optimizer state.
  static Precision fp16() { return {at::kHalf, at::kFloat, at::kFloat, at::kFloat}; }
  /// bf16 throughout: half the memory, less exact updates.
  static Precision pure_bf16() { return {at::kBFloat16, at::kBFloat16, at::kBFloat16, at::kBFloat16}; }
};

}  // namespace qft::optim
