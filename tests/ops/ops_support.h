// Shared by the tests of the operations: random inputs, fp64 autograd as reference, and comparisons.
#pragma once

#include "qft/ops/workspace.h"

#include <functional>
#include <vector>

#include "ops/linear/brgemm_cpu.h"
#include <ATen/core/Tensor.h>
#include <gtest/gtest.h>

namespace qft::ops::testing {

/// Dtypes in which every operation is tested.
inline const std::vector<at::ScalarType> kDtypes = {at::kDouble, at::kFloat, at::kBFloat16};

/// Allowed relative error (Frobenius norm) against fp64 on the same inputs. bf16 rounds each stored value by up to 2^-9, about
/// 0.17 % on average; three intermediate roundings stay below 0.6 %.
double tolerance(at::ScalarType dtype);
inline constexpr double kOneRounding = 1.0 / 256;  ///< half a unit in the last place of a bf16

/// Normally distributed values, rounded to dtype; the same for the same seed and shape.
at::Tensor randn(at::IntArrayRef shape, at::ScalarType dtype, std::uint64_t seed, double scale = 1.0);
inline at::Tensor bf16s(at::IntArrayRef shape, std::uint64_t seed) {
  return randn(shape, at::kBFloat16, seed);
}
at::Tensor empty(at::IntArrayRef shape, at::ScalarType dtype);
at::Tensor zeros(at::IntArrayRef shape, at::ScalarType dtype);
at::Tensor int32s(const std::vector<std::int32_t>& values);
/// The dtype of rstd, lse and log-probabilities.
at::ScalarType statistics_dtype(at::ScalarType dtype);

/// a b in fp64
at::Tensor exact_product(const at::Tensor& a, const at::Tensor& b);
/// ||actual - expected|| / ||expected|| in fp64; infinite if actual is not finite.
double relative_error(const at::Tensor& actual, const at::Tensor& expected);
void expect_close(const at::Tensor& actual, const at::Tensor& expected, double tolerance, const char* what);

/// Value and gradients of `f` at fp64 copies of `inputs`, contracted with `gout` (fp64 copy as well).
struct Oracle {
  at::Tensor value;
  std::vector<at::Tensor> grads;
};
using Function = std::function<at::Tensor(const std::vector<at::Tensor>&)>;
Oracle differentiate(const Function& f, const std::vector<at::Tensor>& inputs, const at::Tensor& gout);

/// Base for tests that run with each tile type, whichever this processor would choose: use TEST_P with a derived struct,
/// instantiated with kAllTileTypes.
struct EachTileType : ::testing::TestWithParam<blocked::TileType> {
  void SetUp() override {
    if (!blocked::available(GetParam())) GTEST_SKIP() << "no such blocks on this processor";
  }
};
inline const auto kAllTileTypes = ::testing::Values(blocked::TileType::bf16, blocked::TileType::fp32);

inline Workspace& workspace() {
  static Workspace instance(c10::Device(c10::kCPU));
  return instance;
}

}  // namespace qft::ops::testing
