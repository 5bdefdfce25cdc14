#include <gtest/gtest.h>

#include <cmath>

#include <ATen/TensorOperators.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/linspace.h>
#include <ATen/ops/mean.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros_like.h>

#include "qft/core/error.h"
#include "qft/optim/adamw.h"
#include "qft/optim/schedule.h"

namespace qft::optim {
namespace {

/// torch.optim.AdamW's documented update, written out in fp64.
void reference_step(at::Tensor& p, at::Tensor& m, at::Tensor& v, const at::Tensor& g, double lr, double wd, int t) {
  p.mul_(1 - lr * wd);
  m.mul_(0.9).add_(g, 0.1);
  v.mul_(0.999).addcmul_(g, g, 0.001);
  const auto denom = (v.sqrt() / std::sqrt(1 - std::pow(0.999, t))).add_(1e-8);
  p.addcdiv_(m, denom, -lr / (1 - std::pow(0.9, t)));
}

TEST(AdamW, FollowsTheFormulaWithAndWithoutDecay) {
  auto weights = at::randn({130}, at::kDouble), grads = at::zeros_like(weights);
  auto p = weights.clone(), m = at::zeros_like(p), v = at::zeros_like(p);
  AdamW adam({{"unit", weights, grads, {{0, 100, true}, {100, 130, false}}}}, {.weight_decay = 0.1}, Precision::fp64());
  for (int t = 1; t <= 5; ++t) {
    const auto g = at::randn({130}, at::kDouble);
    grads.copy_(g);
    adam.step(1e-2, 0.5);
    auto decayed = p.narrow(0, 0, 100), plain = p.narrow(0, 100, 30);
    auto m0 = m.narrow(0, 0, 100), m1 = m.narrow(0, 100, 30), v0 = v.narrow(0, 0, 100), v1 = v.narrow(0, 100, 30);
    reference_step(decayed, m0, v0, g.narrow(0, 0, 100) * 0.5, 1e-2, 0.1, t);
    reference_step(plain, m1, v1, g.narrow(0, 100, 30) * 0.5, 1e-2, 0.0, t);
    EXPECT_TRUE(at::allclose(weights, p, 1e-12, 1e-12)) << "step " << t;
  }
}

TEST(AdamW, KeepsMastersInFullPrecision) {
  auto weights = at::linspace(-0.9, 0.9, 64, at::kFloat).to(at::kBFloat16);
  auto grads = at::zeros_like(weights, weights.options().dtype(at::kFloat));
  AdamW adam({{"unit", weights, grads, {{0, 64, true}}}}, {}, Precision::bf16());
  const auto before = adam.master(0).clone();
  for (int t = 0; t < 100; ++t) {
    grads.fill_(1.0);
    adam.step(1e-6, 1.0);  // too small a step for bf16 to see at once
  }
  EXPECT_NEAR(at::Tensor(before - adam.master(0)).mean().item<double>(), 1e-4, 3e-6);
  EXPECT_TRUE(weights.equal(adam.master(0).to(at::kBFloat16)));
}

// The values of deepspeed.runtime.lr_schedules.WarmupLR with warmup_type "log": log(i + 1) / log(warmup_num_steps).
TEST(Schedule, WarmsUpByTheLogarithmAsDeepSpeed) {
  const Schedule s{ScheduleKind::constant_with_warmup, 2.0, 10, 110, /*log_warmup=*/true};
  EXPECT_DOUBLE_EQ(s.at(0), 0.0);
  EXPECT_DOUBLE_EQ(s.at(1), 2.0 * 0.30102999566398120);
  EXPECT_DOUBLE_EQ(s.at(4), 2.0 * 0.69897000433601880);
  EXPECT_DOUBLE_EQ(s.at(9), 2.0);
  EXPECT_DOUBLE_EQ(s.at(10), 2.0);
  EXPECT_DOUBLE_EQ((Schedule{ScheduleKind::linear, 2.0, 1, 3, true}.at(0)), 0.0);
}

TEST(Schedule, MatchesTransformersAtTheEdges) {
  Schedule s{ScheduleKind::cosine, 2.0, 10, 110};
  EXPECT_DOUBLE_EQ(s.at(0), 0.0);
  EXPECT_DOUBLE_EQ(s.at(5), 1.0);
  EXPECT_DOUBLE_EQ(s.at(10), 2.0);
  EXPECT_NEAR(s.at(60), 1.0, 1e-12);
  EXPECT_NEAR(s.at(110), 0.0, 1e-12);
  s.kind = ScheduleKind::linear;
  EXPECT_DOUBLE_EQ(s.at(60), 1.0);
  s.kind = ScheduleKind::constant_with_warmup;
  EXPECT_DOUBLE_EQ(s.at(100), 2.0);
  s.kind = ScheduleKind::constant;
  EXPECT_DOUBLE_EQ(s.at(0), 2.0);
  EXPECT_THROW(parse_schedule("polynomial"), ConfigError);
}

}  // namespace
}  // namespace qft::optim
