// The optimizer's CUDA kernels: run by the stand-in for CUDA on any machine, and by way of AdamW on a GPU.
#include "support/simt.h"

#include "optim/cuda/adamw.cuh"
#include "optim/cuda/square_sum.cuh"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include <ATen/TensorOperators.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include "qft/device/device.h"
#include "qft/optim/adamw.h"
#include "qft/optim/square_sum.h"

namespace qft::optim {
namespace {

constexpr float kLr = 1e-2F, kDecay = 0.1F;

/// ATen's update on the CPU, by AdamW itself.
struct Expected {
  explicit Expected(const Precision& precision, std::int64_t n)
      : weights(at::randn({n}, at::kDouble).to(precision.master).to(precision.compute)),
        grads(at::zeros({n}, at::TensorOptions().dtype(precision.grad))),
        adam({{"unit", weights, grads, {{0, n, true}}}}, {.weight_decay = kDecay}, precision) {}
  at::Tensor weights, grads;
  AdamW adam;
};

template <class P, class W>
void compare_by_stand_in(const Precision& precision, std::int64_t n, std::int64_t shift) {
  Expected expected(precision, n);
  const auto fresh = [&](const at::Tensor& t) {  // `shift` elements behind an aligned address
    return at::zeros({n + shift}, t.options()).narrow(0, shift, n).copy_(t);
  };
  const at::Tensor master = fresh(expected.adam.master(0)), m = fresh(expected.adam.exp_avg(0)), v = fresh(expected.adam.exp_avg_sq(0));
  const at::Tensor copy = fresh(expected.weights), grads = fresh(expected.grads);
  for (int t = 1; t <= 3; ++t) {
    grads.copy_(at::randn({n}, at::kDouble));
    expected.grads.copy_(grads);
    expected.adam.step(kLr, 0.5);
    const cuda::AdamWNumbers numbers{0.9F, 0.999F, 1e-8F, kLr / (1 - std::pow(0.9F, static_cast<float>(t))),
                                     std::sqrt(1 - std::pow(0.999F, static_cast<float>(t))), kLr * kDecay, 0.5F};
    const bool copies = precision.has_master_copy();
    const cuda::AdamWBuffers<P, W> buffers{master.data_ptr<P>(), grads.const_data_ptr<P>(), m.data_ptr<P>(), v.data_ptr<P>(),
                                           copies ? copy.data_ptr<W>() : nullptr, n};
    cuda::launch_adamw(buffers, numbers, simt::Launch());
    const double tolerance = precision.master == at::kFloat ? 1e-5 : 2e-2;
    EXPECT_TRUE(at::allclose(master, expected.adam.master(0), tolerance, tolerance * 0.1)) << "step " << t;
    EXPECT_TRUE(at::allclose(m, expected.adam.exp_avg(0), tolerance, tolerance * 0.1)) << "step " << t;
    EXPECT_TRUE(at::allclose(v, expected.adam.exp_avg_sq(0), tolerance, tolerance * 0.1)) << "step " << t;
    if (copies) {
      EXPECT_TRUE(copy.equal(master.to(precision.compute))) << "step " << t;
    }
  }
}

TEST(AdamWKernel, AgreesWithAtenOnAnyLengthAndAlignment) {
  for (const std::int64_t n : {1, 7, 1024, 1029})
    for (const std::int64_t shift : {0, 3}) {
      compare_by_stand_in<float, float>(Precision::fp32(), n, shift);
      compare_by_stand_in<float, c10::BFloat16>(Precision::bf16(), n, shift);
      compare_by_stand_in<float, c10::Half>(Precision::fp16(), n, shift);
      compare_by_stand_in<c10::BFloat16, c10::BFloat16>(Precision::pure_bf16(), n, shift);
    }
}

TEST(AdamWKernel, UpdatesOnAGpuAsOnTheCpu) {
  if (device::cuda_device_count() == 0) GTEST_SKIP() << "no GPU";
  const c10::Device gpu(at::kCUDA, 0);
  for (const Precision& precision : {Precision::fp32(), Precision::bf16(), Precision::fp16(), Precision::pure_bf16()}) {
    constexpr std::int64_t n = 1003;
    const std::vector<Segment> segments = {{0, 400, true}, {400, 407, false}, {407, n, true}};
    const at::Tensor weights = at::randn({n}).to(precision.compute), grads = at::zeros({n}, at::TensorOptions().dtype(precision.grad));
    const at::Tensor weights2 = weights.to(gpu), grads2 = grads.to(gpu);
    AdamW cpu({{"unit", weights, grads, segments}}, {.weight_decay = kDecay}, precision);
    AdamW cuda({{"unit", weights2, grads2, segments}}, {.weight_decay = kDecay}, precision);
    for (int t = 1; t <= 3; ++t) {
      const at::Tensor g = at::randn({n});
      grads.copy_(g);
      grads2.copy_(g);
      cpu.step(kLr, 0.5);
      cuda.step(kLr, 0.5);
    }
    const double tolerance = precision.master == at::kFloat ? 1e-5 : 2e-2;
    EXPECT_TRUE(at::allclose(cuda.master(0).cpu(), cpu.master(0), tolerance, tolerance * 0.1));
    if (precision.has_master_copy()) {
      EXPECT_TRUE(weights2.equal(cuda.master(0).to(precision.compute)));
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
    EXPECT_NEAR(square_sum({values}), exact, 1e-12 * exact);
    EXPECT_NEAR(square_sum({values.to(at::kDouble)}), exact, 1e-12 * exact);
    const at::Tensor half = values.to(at::kHalf);
    const double exact_half = half.to(at::kDouble).square().sum().item<double>();
    EXPECT_NEAR(square_sum({half}), exact_half, 1e-12 * exact_half);
    EXPECT_NEAR(square_sum({values, narrow}), exact + exact_narrow, 1e-12 * (exact + exact_narrow));
    if (device::cuda_device_count() == 0) continue;
    const c10::Device gpu(at::kCUDA, 0);
    EXPECT_NEAR(square_sum({values.to(gpu), narrow.to(gpu)}), exact + exact_narrow, 1e-12 * (exact + exact_narrow));
  }
  EXPECT_EQ(square_sum({}), 0.0);
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
