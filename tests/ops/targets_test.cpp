// Tests the kernels for older instruction sets; no other test reaches them on a machine with newer ones.
#include "qft/ops/activation.h"
#include "qft/ops/attention.h"
#include "qft/ops/dropout.h"
#include "qft/ops/generic.h"
#include "qft/ops/head.h"
#include "qft/ops/linear.h"
#include "qft/ops/norm.h"
#include "qft/ops/rope.h"

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <string>

#include "ops_support.h"
#include <ATen/TensorOperators.h>
#include <ATen/ops/matmul.h>
#include <hwy/targets.h>

namespace qft::ops {
namespace {

using namespace testing;

constexpr std::int64_t kRows = 37, kWidth = 83;  // neither is a multiple of any vector length

class InstructionSet : public ::testing::TestWithParam<std::int64_t> {
 protected:
  void SetUp() override {
    if (GetParam() != 0 && (hwy::SupportedTargets() & GetParam()) == 0)
      GTEST_SKIP() << "this processor has no " << hwy::TargetName(GetParam());
    hwy::GetChosenTarget().Update(GetParam());  // 0 leaves the compiler's baseline
  }
  void TearDown() override { hwy::GetChosenTarget().DeInit(); }
};

const std::vector<at::ScalarType> kKernelDtypes = {at::kFloat, at::kBFloat16};

TEST_P(InstructionSet, NormAgreesWithTheGenericPath) {
  for (const at::ScalarType dtype : kKernelDtypes) {
    const at::Tensor x = randn({kRows, kWidth}, dtype, 1), w = randn({kWidth}, dtype, 2), gy = randn(x.sizes(), dtype, 3);
    const at::Tensor y = empty(x.sizes(), dtype), rstd = empty({kRows}, at::kFloat), gx = empty(x.sizes(), dtype);
    const at::Tensor gw = zeros({kWidth}, at::kFloat), gw2 = gw.clone(), y2 = y.clone(), gx2 = gx.clone();
    const at::Tensor rstd2 = rstd.clone();
    rms_norm_forward(x, w, 1e-5, y, rstd);
    rms_norm_backward({.gy = gy, .x = x, .weight = w, .rstd = rstd, .residual_grad = gy, .gx = gx, .gweight = gw}, workspace());
    generic::rms_norm_forward(x, w, 1e-5, y2, rstd2);
    generic::rms_norm_backward({.gy = gy, .x = x, .weight = w, .rstd = rstd2, .residual_grad = gy, .gx = gx2, .gweight = gw2});
    expect_close(y, y2, tolerance(dtype), "y");
    expect_close(gx, gx2, tolerance(dtype), "gx");
    expect_close(gw, gw2, tolerance(dtype), "gw");
  }
}

TEST_P(InstructionSet, ProductsOfFewRowsAgreeWithTheMatmul) {
  for (const at::ScalarType dtype : kKernelDtypes)
    for (const std::int64_t tokens : {1, 2, 3, 5, 8}) {
      const at::Tensor x = randn({tokens, kWidth}, dtype, 1), weight = randn({kRows, kWidth}, dtype, 2, 0.1);
      const at::Tensor bias = randn({kRows}, dtype, 3), y = empty({tokens, kRows}, dtype);
      linear_forward(x, {weight, bias, {}}, {}, y, {}, workspace());
      const at::Tensor expected = at::matmul(x.to(at::kDouble), weight.to(at::kDouble).t()) + bias.to(at::kDouble);
      expect_close(y, expected.to(dtype), tolerance(dtype), "y");
      for (std::int64_t t = 0; t < tokens; ++t) {
        const at::Tensor alone = empty({1, kRows}, dtype);
        linear_forward(x.narrow(0, t, 1), {weight, bias, {}}, {}, alone, {}, workspace());
        EXPECT_TRUE(at::equal(alone, y.narrow(0, t, 1))) << "row " << t << " of " << tokens;
      }
    }
}

TEST_P(InstructionSet, DecodeAttentionMatchesFullAttention) {
  constexpr std::int64_t kHeads = 6, kKvHeads = 2, kHeadDim = 20, kTokens = 41;
  for (const at::ScalarType dtype : kKernelDtypes)
    for (const std::int64_t window : {0L, 1L, 7L, 32L, 1L << 32}) {
      SCOPED_TRACE("window " + std::to_string(window));
      const AttentionOptions options{0.3, window};
      const at::Tensor qkv = randn({kTokens, (kHeads + 2 * kKvHeads) * kHeadDim}, dtype, 1);
      const QkvViews views = split_qkv(qkv, kHeads, kKvHeads, kHeadDim);
      const at::Tensor all = empty({kTokens, kHeads * kHeadDim}, dtype), lse = empty({kHeads, kTokens}, at::kFloat);
      const std::vector<std::int32_t> bounds = {0, kTokens};
      attention_forward(views, PackedSequences::build(bounds, at::kCPU), options, all, lse, workspace(),
                        AttentionKernel::reference);
      const auto keys = views.k.transpose(0, 1).contiguous(), values = views.v.transpose(0, 1).contiguous();
      for (const std::int64_t count : {1, 3, 12}) {  // several: computed by LibTorch
        const at::Tensor out = empty({count, kHeads * kHeadDim}, dtype);
        const std::vector<CachedSequence> one = {{count, kTokens, keys, values}};
        attention_decode(views.q.narrow(0, kTokens - count, count), one, options, out, workspace());
        expect_close(out, all.narrow(0, kTokens - count, count), tolerance(dtype), "out");
      }
      // The same rows as separate sequences, each seeing part of the cache: alone and together.
      std::vector<CachedSequence> several;
      for (const std::int64_t seen : {30, 31, 32, 33, 34}) several.push_back({1, seen, keys, values});
      const at::Tensor q = views.q.narrow(0, 29, 5), together = empty({5, kHeads * kHeadDim}, dtype);
      attention_decode(q, several, options, together, workspace());
      expect_close(together, all.narrow(0, 29, 5), tolerance(dtype), "together");
      for (std::int64_t s = 0; s < 5; ++s) {
        const at::Tensor alone = empty({1, kHeads * kHeadDim}, dtype);
        attention_decode(q.narrow(0, s, 1), std::span(several).subspan(static_cast<std::size_t>(s), 1), options, alone,
                         workspace());
        EXPECT_TRUE(at::equal(alone, together.narrow(0, s, 1))) << "sequence " << s;
      }
    }
}

TEST_P(InstructionSet, SwigluAndRopeAgreeWithTheGenericPath) {
  const RopeTable table = RopeTable::build(std::vector<double>{1.0, 0.5, 0.1, 0.01, 0.001}, kRows, at::kFloat, at::kCPU);
  std::vector<std::int32_t> positions;
  for (std::int32_t t = 0; t < kRows; ++t) positions.push_back(kRows - 1 - t);
  for (const at::ScalarType dtype : kKernelDtypes) {
    const at::Tensor gate_up = randn({kRows, 2 * kWidth}, dtype, 1), gact = randn({kRows, kWidth}, dtype, 2);
    const at::Tensor act = empty(gact.sizes(), dtype), grad = empty(gate_up.sizes(), dtype);
    const at::Tensor act2 = act.clone(), grad2 = grad.clone();
    swiglu_forward(gate_up, act);
    swiglu_backward(gate_up, gact, grad, {});
    generic::swiglu_forward(gate_up, act2);
    generic::swiglu_backward(gate_up, gact, grad2, {});
    expect_close(act, act2, tolerance(dtype), "act");
    expect_close(grad, grad2, tolerance(dtype), "gate_up gradient");
    const at::Tensor heads = randn({kRows, 3, 10}, dtype, 3), heads2 = heads.clone();
    rope(heads, int32s(positions), table, RopeDirection::forward);
    generic::rope(heads2, int32s(positions), table, RopeDirection::forward);
    expect_close(heads, heads2, tolerance(dtype), "rope");
  }
}

TEST_P(InstructionSet, DropoutHasTheSameMask) {
  const RowIdentity rows{zeros({kRows}, at::kLong).fill_(std::int64_t{5} << 33), zeros({kRows}, at::kInt)};
  for (const at::ScalarType dtype : kKernelDtypes) {
    const at::Tensor x = randn({kRows, kWidth}, dtype, 1), out = empty(x.sizes(), dtype);
    dropout_forward(x, {1, 2, 3, 4}, rows, 0.3, out);
    expect_close(out, generic::dropout(x, {1, 2, 3, 4}, rows, 0.3), tolerance(dtype), "dropped");
  }
}

TEST_P(InstructionSet, HeadAgreesWithItsFp64Form) {
  const at::Tensor labels = int32s({0, 3, 5}), targets = int32s({81, 0, 7}), grad = randn({3}, at::kFloat, 3);
  for (const at::ScalarType dtype : kKernelDtypes) {
    const at::Tensor x = randn({6, 16}, dtype, 1), w = randn({kWidth, 16}, dtype, 2), gx = empty(x.sizes(), dtype);
    const at::Tensor logprobs = empty({3}, at::kFloat), expected = empty({3}, at::kDouble);
    const at::Tensor gx2 = empty(x.sizes(), at::kDouble);
    head_forward_backward(
        {.x = x, .weight = w, .labels = {labels, targets}, .grad_logprobs = grad, .logprobs = logprobs, .gx = gx}, workspace());
    head_forward_backward({.x = x.to(at::kDouble),
                           .weight = w.to(at::kDouble),
                           .labels = {labels, targets},
                           .grad_logprobs = grad.to(at::kDouble),
                           .logprobs = expected,
                           .gx = gx2},
                          workspace());
    expect_close(logprobs, expected, dtype == at::kFloat ? 5e-6 : 1e-2, "logprobs");
    expect_close(gx, gx2, dtype == at::kFloat ? 5e-6 : 1e-2, "gx");
  }
}

TEST_P(InstructionSet, AttentionAgreesWithTheReference) {
  const PackedSequences packed = PackedSequences::build(std::vector<std::int32_t>{0, 70, 70, 90}, at::kCPU);
  for (const at::ScalarType dtype : kKernelDtypes)
    for (const AttentionOptions options : {AttentionOptions{0.2}, AttentionOptions{0.2, 5}}) {
      const at::Tensor qkv = randn({90, 4 * 24}, dtype, 1), gout = randn({90, 2 * 24}, dtype, 2);
      const QkvViews in = split_qkv(qkv, 2, 1, 24);
      at::Tensor outs[2], grads[2];
      for (const bool plain : {false, true}) {
        const AttentionKernel kernel = plain ? AttentionKernel::reference : AttentionKernel::automatic;
        const at::Tensor lse = empty({2, 90}, at::kFloat);
        outs[plain] = empty(gout.sizes(), dtype), grads[plain] = empty(qkv.sizes(), dtype);
        attention_forward(in, packed, options, outs[plain], lse, workspace(), kernel);
        attention_backward({.gout = gout, .in = in, .out = outs[plain], .lse = lse, .grads = split_qkv(grads[plain], 2, 1, 24)},
                           packed, options, workspace(), kernel);
      }
      expect_close(outs[0], outs[1], 2 * tolerance(dtype), "out");
      expect_close(grads[0], grads[1], 2 * tolerance(dtype), "gradients");
    }
}

TEST_P(InstructionSet, AttentionPassesNanOn) {
  const PackedSequences packed = PackedSequences::build(std::vector<std::int32_t>{0, 70}, at::kCPU);
  const at::Tensor qkv = randn({70, 3 * 16}, at::kFloat, 1), out = empty({70, 16}, at::kFloat);
  qkv[69][0].fill_(std::numeric_limits<double>::quiet_NaN());
  attention_forward(split_qkv(qkv, 1, 1, 16), packed, {0.25}, out, empty({1, 70}, at::kFloat), workspace());
  EXPECT_TRUE(out[69].isnan().all().item<bool>());
  EXPECT_EQ(out.isnan().sum().item<std::int64_t>(), 16);
}

/// A large value among small ones, as in the first token of many models: a single running sum would lose most of the small
/// values.
TEST_P(InstructionSet, NormIsAsAccurateWithShortVectors) {
  const at::Tensor x = randn({4, 8192}, at::kFloat, 5), weight = randn({8192}, at::kFloat, 6);
  x.select(1, 0).fill_(3000.0);
  const at::Tensor y = empty({4, 8192}, at::kFloat), rstd = empty({4}, at::kFloat);
  rms_norm_forward(x, weight, 1e-6, y, rstd);
  const at::Tensor exact = x.to(at::kDouble).square().mean(1).add(1e-6).rsqrt();
  const double error = (rstd.to(at::kDouble) / exact - 1.0).abs().max().item<double>();
  EXPECT_LT(error, 4e-6);
}

INSTANTIATE_TEST_SUITE_P(Targets, InstructionSet,
#if HWY_ARCH_X86
                         ::testing::Values(std::int64_t{HWY_AVX3}, std::int64_t{HWY_AVX2}, std::int64_t{HWY_SSE4},
                                           std::int64_t{0}));
#else
                         ::testing::Values(std::int64_t{0}));
#endif

#if HWY_ARCH_X86
TEST(InstructionSets, TheEnvironmentLimitsThem) {
  if (const char* held = std::getenv("QFT_CPU_ISA"); held != nullptr) {
    if (std::string_view(held) == "avx2") {
      EXPECT_EQ(hwy::SupportedTargets() & (HWY_AVX2 - 1), 0);
    }
    return;
  }
  const std::string self = std::filesystem::read_symlink("/proc/self/exe").string();
  const auto ends_well = [&](const std::string& level) {
    return std::system(("QFT_CPU_ISA=" + level + " '" + self + "' --gtest_filter=InstructionSets.* >/dev/null 2>&1").c_str()) ==
           0;
  };
  EXPECT_TRUE(ends_well("avx2"));
  EXPECT_FALSE(ends_well("avx3"));
}
#endif

}  // namespace
}  // namespace qft::ops
