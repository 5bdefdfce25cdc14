// The optimizer's CUDA kernels, run by the CUDA stand-in on any machine, and through the optimizer on a GPU.
// clang-format off: before every kernel, for it is the CUDA that they see
#include "support/simt.h"
// clang-format on

#include "qft/optim/optimizer.h"
#include "qft/optim/square_sum.h"

#include <cmath>
#include <limits>
#include <vector>

#include "optim/cuda/adamw.cuh"
#include "optim/cuda/lion.cuh"
#include "optim/cuda/square_sum.cuh"
#include "optim/cuda/update.cuh"
#include "support/gpu.h"
#include <ATen/TensorOperators.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <gtest/gtest.h>

namespace qft::optim {
namespace {

constexpr float kLr = 1e-2F, kDecay = 0.1F, kScale = 0.5F;

cuda::AdamWElement adamw_element(int step) {
  const double t = step;
  return {static_cast<float>(1 - 0.9),
          static_cast<float>(1 - 0.999),
          1e-8F,
          static_cast<float>(kLr / (1 - std::pow(0.9, t))),
          static_cast<float>(std::sqrt(1 - std::pow(0.999, t))),
          kLr * kDecay,
          kScale};
}

cuda::LionElement lion_element(int) {
  return {0.9F, 0.999F, static_cast<float>(1 - 0.9), static_cast<float>(1 - 0.999), kLr, kLr * kDecay, kScale};
}

/// Call it with many values: small errors in small values would hide behind an absolute tolerance, and a sum of few values may
/// cancel.
double relative_difference(const at::Tensor& actual, const at::Tensor& expected) {
  const at::Tensor exact = expected.to(at::kDouble);
  return ((actual.to(at::kDouble) - exact).norm() / exact.norm()).item<double>();
}

/// Compares the kernel with the rule itself, which uses ATen on the CPU.
template <class P, class W, int S, class Element>
void compare_by_stand_in(const char* optim, const Precision& precision, std::int64_t n, std::int64_t shift,
                         Element (*element)(int step)) {
  const at::Tensor weights = at::randn({n}, at::kDouble).to(precision.master).to(precision.compute);
  const at::Tensor expected_grads = at::zeros({n}, at::TensorOptions().dtype(precision.grad));
  Optimizer expected(rule_of(optim), {{"unit", weights, expected_grads, {{0, n}}}}, {.weight_decay = kDecay}, precision);
  const auto fresh = [&](const at::Tensor& t) {  // `shift` elements behind an aligned address
    return at::zeros({n + shift}, t.options()).narrow(0, shift, n).copy_(t);
  };
  const at::Tensor master = fresh(expected.master(0)), copy = fresh(weights), grads = fresh(expected_grads);
  std::vector<at::Tensor> state;
  cuda::UpdateBuffers<P, W, S> buffers{
      master.data_ptr<P>(), grads.const_data_ptr<P>(), {}, precision.has_master_copy() ? copy.data_ptr<W>() : nullptr, n};
  for (int s = 0; s < S; ++s) {
    state.push_back(fresh(expected.state(0, static_cast<std::size_t>(s))));
    buffers.state[s] = state.back().data_ptr<P>();
  }
  const double tolerance = precision.master == at::kFloat ? 1e-5 : 2e-2;
  for (int t = 1; t <= 3; ++t) {
    grads.copy_(at::randn({n}, at::kDouble));
    expected_grads.copy_(grads);
    expected.step(kLr, kScale);
    cuda::launch_update(buffers, element(t), simt::Launch());
    EXPECT_TRUE(at::allclose(master, expected.master(0), tolerance, tolerance * 0.1)) << optim << " step " << t;
    for (std::size_t s = 0; s < state.size(); ++s) {
      EXPECT_TRUE(at::allclose(state[s], expected.state(0, s), tolerance, tolerance * 0.1))
          << optim << " step " << t << " state " << s;
      EXPECT_TRUE(n < 1000 || relative_difference(state[s], expected.state(0, s)) < tolerance / 10)
          << optim << " step " << t << " state " << s;
    }
    if (precision.has_master_copy()) {
      EXPECT_TRUE(copy.equal(master.to(precision.compute))) << optim << " step " << t;
    }
  }
}

template <int S, class Element>
void compare_all(const char* optim, Element (*element)(int step)) {
  for (const std::int64_t n : {1, 7, 1024, 1029})
    for (const std::int64_t shift : {0, 3}) {
      compare_by_stand_in<float, float, S>(optim, Precision::fp32(), n, shift, element);
      compare_by_stand_in<float, c10::BFloat16, S>(optim, Precision::bf16(), n, shift, element);
      compare_by_stand_in<float, c10::Half, S>(optim, Precision::fp16(), n, shift, element);
      compare_by_stand_in<c10::BFloat16, c10::BFloat16, S>(optim, Precision::pure_bf16(), n, shift, element);
    }
}

TEST(UpdateKernel, OfAdamWAgreesWithAtenOnAnyLengthAndAlignment) {
  compare_all<2>("adamw", adamw_element);
}

TEST(UpdateKernel, OfLionAgreesWithAtenOnAnyLengthAndAlignment) {
  compare_all<1>("lion", lion_element);
}

TEST(UpdateKernel, UpdatesOnAGpuAsOnTheCpu) {
  if (!test::has_gpu()) GTEST_SKIP() << "no GPU";
  const c10::Device gpu(at::kCUDA, 0);
  for (const RuleSpec& rule : rules()) {
    if (!rule.is_uniform()) continue;  // other rules use ATen's kernels
    for (const Precision& precision :
         {Precision::fp32(), Precision::bf16(), Precision::fp16(), Precision::pure_bf16(), Precision::fp64()}) {
      constexpr std::int64_t n = 1003;
      const std::vector<Segment> segments = {{0, 400}, {400, 407, 1.0, 0.0}, {407, n, 0.5}};
      const at::Tensor weights = at::randn({n}).to(precision.compute),
                       grads = at::zeros({n}, at::TensorOptions().dtype(precision.grad));
      const at::Tensor weights2 = weights.to(gpu), grads2 = grads.to(gpu);
      Optimizer cpu(rule, {{"unit", weights, grads, segments}}, {.weight_decay = kDecay}, precision);
      Optimizer cuda(rule, {{"unit", weights2, grads2, segments}}, {.weight_decay = kDecay}, precision);
      for (int t = 1; t <= 3; ++t) {
        const at::Tensor g = at::randn({n});
        grads.copy_(g);
        grads2.copy_(g);
        cpu.step(kLr, kScale);
        cuda.step(kLr, kScale);
      }
      const double tolerance = precision.master == at::kBFloat16 ? 2e-2 : 1e-5;
      EXPECT_TRUE(at::allclose(cuda.master(0).cpu(), cpu.master(0), tolerance, tolerance * 0.1)) << rule.name;
      if (precision.has_master_copy()) {
        EXPECT_TRUE(weights2.equal(cuda.master(0).to(precision.compute))) << rule.name;
      }
    }
  }
}

template <class T>
double squares_by_stand_in(const at::Tensor& values) {
  const at::Tensor parts = at::empty({cuda::kSquareParts}, at::kDouble).fill_(std::numeric_limits<double>::quiet_NaN());
  cuda::launch_square_sum(values.const_data_ptr<T>(), values.numel(), parts.data_ptr<double>(), simt::Launch());
  return parts.sum().item<double>();
}

TEST(SquareSum, AgreesWithFp64) {
  for (const std::int64_t n : {1, 3, 700000}) {
    const at::Tensor values = at::randn({n}), narrow = values.to(at::kBFloat16);
    const double exact = values.to(at::kDouble).square().sum().item<double>();
    const double exact_narrow = narrow.to(at::kDouble).square().sum().item<double>();
    EXPECT_NEAR(square_sums({values.to(at::kDouble)})[0], exact, 1e-12 * exact);
    const at::Tensor half = values.to(at::kHalf);
    const double exact_half = half.to(at::kDouble).square().sum().item<double>();
    EXPECT_NEAR(square_sums({half})[0], exact_half, 1e-12 * exact_half);
    const auto both = square_sums({values, at::Tensor(values.narrow(0, 0, 0)), narrow});
    EXPECT_NEAR(both.at(0), exact, 1e-12 * exact);
    EXPECT_EQ(both.at(1), 0.0);
    EXPECT_NEAR(both.at(2), exact_narrow, 1e-12 * exact_narrow);
    if (!test::has_gpu()) continue;
    const c10::Device gpu(at::kCUDA, 0);
    const auto there = square_sums({values.to(gpu), narrow.to(gpu)});
    EXPECT_NEAR(there.at(0), exact, 1e-12 * exact);
    EXPECT_NEAR(there.at(1), exact_narrow, 1e-12 * exact_narrow);
  }
  EXPECT_TRUE(square_sums({}).empty());
}

TEST(SquareSum, KernelAgreesWithFp64) {
  const at::Tensor values = at::randn({4099}), narrow = values.narrow(0, 0, 3).to(at::kBFloat16);
  const double exact = values.to(at::kDouble).square().sum().item<double>();
  const double exact_narrow = narrow.to(at::kDouble).square().sum().item<double>();
  EXPECT_NEAR(squares_by_stand_in<float>(values), exact, 1e-12 * exact);
  EXPECT_NEAR(squares_by_stand_in<c10::BFloat16>(narrow), exact_narrow, 1e-12 * exact_narrow);
}

}  // namespace
}  // namespace qft::optim
