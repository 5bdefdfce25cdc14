#include "qft/config/optimizers.h"
#include "qft/core/error.h"
#include "qft/ops/dynamic_map.h"
#include "qft/optim/optimizer.h"
#include "qft/optim/schedule.h"

#include <algorithm>
#include <cmath>
#include <string>

#include <ATen/TensorOperators.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/linspace.h>
#include <ATen/ops/mean.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

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

/// The run's rate and decay, half the rate, no decay.
const std::vector<Segment> kSegments = {{0, 60}, {60, 100, 0.5}, {100, 130, 1.0, 0.0}};

TEST(AdamW, FollowsTheFormulaWithTheRateAndDecayOfEachSegment) {
  auto weights = at::randn({130}, at::kDouble), grads = at::zeros_like(weights);
  auto p = weights.clone(), m = at::zeros_like(p), v = at::zeros_like(p);
  Optimizer adam(rule_of("adamw_torch"), {{"unit", weights, grads, kSegments}}, {.weight_decay = 0.1}, Precision::fp64());
  for (int t = 1; t <= 5; ++t) {
    const auto g = at::randn({130}, at::kDouble);
    grads.copy_(g);
    adam.step(1e-2, 0.5);
    for (const Segment& s : kSegments) {
      const auto part = [&](const at::Tensor& x) { return x.narrow(0, s.begin, s.end - s.begin); };
      auto p0 = part(p), m0 = part(m), v0 = part(v);
      reference_step(p0, m0, v0, part(g) * 0.5, 1e-2 * s.lr_factor, 0.1 * s.decay_factor, t);
    }
    EXPECT_TRUE(at::allclose(weights, p, 1e-12, 1e-12)) << "step " << t;
    EXPECT_TRUE(at::allclose(adam.state(0, 0), m, 1e-12, 1e-12)) << "step " << t;
    EXPECT_TRUE(at::allclose(adam.state(0, 1), v, 1e-12, 1e-12)) << "step " << t;
  }
}

TEST(AdamW, KeepsMastersInFullPrecision) {
  auto weights = at::linspace(-0.9, 0.9, 64, at::kFloat).to(at::kBFloat16);
  auto grads = at::zeros_like(weights, weights.options().dtype(at::kFloat));
  Optimizer adam(rule_of("adamw_torch"), {{"unit", weights, grads, {{0, 64}}}}, {}, Precision::bf16());
  const auto before = adam.master(0).clone();
  for (int t = 0; t < 100; ++t) {
    grads.fill_(1.0);
    adam.step(1e-6, 1.0);  // too small a step to change a bf16 value at once
  }
  EXPECT_NEAR(at::Tensor(before - adam.master(0)).mean().item<double>(), 1e-4, 3e-6);
  EXPECT_TRUE(weights.equal(adam.master(0).to(at::kBFloat16)));
}

TEST(Rules, AreFoundByEachOfTheirNames) {
  ASSERT_EQ(rules().size(), std::size(config::kOptimizers));
  for (std::size_t i = 0; i < rules().size(); ++i) {
    const config::OptimizerNames& names = config::kOptimizers[i];
    EXPECT_EQ(rules()[i].name, names.name);
    for (const char* optim : names.optim) EXPECT_EQ(&rule_of(optim), &rules()[i]) << optim;
    EXPECT_EQ(names.plain.empty(), names.deepspeed.size() == 0) << names.name;
    if (!names.plain.empty()) {
      EXPECT_EQ(&rule_of(names.plain), &rules()[i]);
    }
  }
  EXPECT_EQ(rule_of("lion").states({{8}}, {}, Precision::bf16()).at(0).name, "exp_avg");
  EXPECT_EQ(rule_of("galore_adamw").name, "GaLore");
  EXPECT_THROW(rule_of("adam_mini"), ConfigError);
}

TEST(Optimizer, HoldsTheStateThatItsRuleNames) {
  for (const RuleSpec& rule : rules())
    for (const Precision& precision : {Precision::bf16(), Precision::pure_bf16(), Precision::fp64()}) {
      constexpr std::int64_t n = 7000;
      const auto weights = at::zeros({n}, precision.compute), grads = at::zeros({n}, precision.grad);
      const Param param{{70, 100}};
      const Optimizer optimizer(rule, {{"unit", weights, grads, {{0, n, 1.0, 1.0, param}}}}, {}, precision);
      const std::int64_t master = precision.has_master_copy() ? 4 : 0;
      EXPECT_EQ(optimizer.bytes(), rule.state_bytes(param, {}, precision) + n * master) << rule.name;
      std::int64_t held = 0;
      for (const HeldState& s : optimizer.held_states(0, 0)) {
        EXPECT_EQ(s.values.numel(), s.spec.numel()) << rule.name << " " << s.spec.name;
        held += static_cast<std::int64_t>(s.values.nbytes());
      }
      EXPECT_EQ(held, rule.state_bytes(param, {}, precision)) << rule.name;
    }
}

/// Program 1 of Chen et al. 2023, written out in fp64.
TEST(Lion, FollowsTheFormulaWithTheRateAndDecayOfEachSegment) {
  auto weights = at::randn({130}, at::kDouble), grads = at::zeros_like(weights);
  auto p = weights.clone(), m = at::zeros_like(p);
  Optimizer lion(rule_of("lion"), {{"unit", weights, grads, kSegments}}, {.beta1 = 0.9, .beta2 = 0.99, .weight_decay = 0.1},
                 Precision::fp64());
  for (int t = 1; t <= 5; ++t) {
    const auto g = at::randn({130}, at::kDouble);
    grads.copy_(g);
    lion.step(1e-2, 0.5);
    for (const Segment& s : kSegments) {
      const auto part = [&](const at::Tensor& x) { return x.narrow(0, s.begin, s.end - s.begin); };
      auto p0 = part(p), m0 = part(m), g0 = part(g) * 0.5;
      p0.sub_((0.9 * m0 + 0.1 * g0).sign() + 0.1 * s.decay_factor * p0, 1e-2 * s.lr_factor);
      m0.copy_(0.99 * m0 + 0.01 * g0);
    }
    EXPECT_TRUE(at::allclose(weights, p, 1e-12, 1e-12)) << "step " << t;
    EXPECT_TRUE(at::allclose(lion.state(0, 0), m, 1e-12, 1e-12)) << "step " << t;
  }
}

/// Intermediate values are computed in pieces, and for bf16 in fp32.
TEST(Lion, IsTheSameInPiecesAndRoundsHalfTypesOnce) {
  constexpr std::int64_t n = (1 << 18) + 77;
  const auto weights = at::randn({n}, at::kDouble).to(at::kBFloat16), grads = at::zeros_like(weights);
  const auto wide = weights.to(at::kFloat), wide_grads = at::zeros_like(wide);
  Optimizer lion(rule_of("lion"), {{"unit", weights, grads, {{0, n}}}}, {.weight_decay = 0.1}, Precision::pure_bf16());
  Optimizer expected(rule_of("lion"), {{"unit", wide, wide_grads, {{0, n}}}}, {.weight_decay = 0.1}, Precision::fp32());
  for (int t = 1; t <= 3; ++t) {
    grads.copy_(at::randn({n}, at::kDouble));
    wide_grads.copy_(grads);
    expected.master(0).copy_(weights);
    expected.state(0, 0).copy_(lion.state(0, 0));
    lion.step(1e-2, 0.5);
    expected.step(1e-2, 0.5);
    EXPECT_TRUE(weights.equal(expected.master(0).to(at::kBFloat16))) << "step " << t;
    EXPECT_TRUE(lion.state(0, 0).equal(expected.state(0, 0).to(at::kBFloat16))) << "step " << t;
  }
}

TEST(Rules, KeepSoManyBytes) {
  const auto bytes = [](const char* optim, const Param& param, const char* args = "") {
    return rule_of(optim).state_bytes(param, {.args = RuleArgs(args)}, Precision::bf16());
  };
  const Param matrix{{64, 128}}, vector{{64}}, embedding{{64, 128}, false, Param::Place::embedding};
  EXPECT_EQ(bytes("lion_32bit", matrix), 8192 * 4);
  EXPECT_EQ(bytes("adamw_torch", matrix), 8192 * 8);
  EXPECT_EQ(bytes("sgd", matrix), 0);
  EXPECT_EQ(bytes("sgd", matrix, "momentum=0.9"), 8192 * 4);
  EXPECT_EQ(bytes("adamw_8bit", matrix), 8192 * 2 + 32 * 8);
  EXPECT_EQ(bytes("adamw_8bit", vector), 64 * 8) << "fewer than 4096 elements";
  EXPECT_EQ(bytes("adamw_8bit", embedding), 8192 * 8);
  EXPECT_EQ(bytes("muon", matrix), 8192 * 4);
  EXPECT_EQ(bytes("muon", embedding), 8192 * 8);
  EXPECT_EQ(bytes("muon", vector), 64 * 8);
  EXPECT_EQ(bytes("adafactor", matrix), (64 + 128) * 4);
  EXPECT_EQ(bytes("adafactor", vector), 64 * 4);
  EXPECT_EQ(bytes("galore_adamw", matrix, "rank=8"), (64 * 8 + 2 * 8 * 128) * 4);
  EXPECT_EQ(bytes("galore_adamw", matrix), (64 * 64 + 2 * 64 * 128) * 4) << "of full rank";
  EXPECT_EQ(bytes("galore_adamw", embedding), 8192 * 8);
  EXPECT_EQ(bytes("apollo_adamw", matrix, "rank=8"), (64 * 8 + 2 * 8 * 128 + 1) * 4);
}

TEST(RuleArgs, RefuseWhatTheRuleDoesNotTake) {
  const auto error = [](const char* optim, const char* args) {
    const Hyper hyper{.args = RuleArgs(args)};
    const RuleSpec& rule = rule_of(optim);
    hyper.args.require_only(rule.args, rule.name);
    rule.make(hyper);
  };
  const auto says = [&](const char* optim, const char* args, const char* part) {
    try {
      error(optim, args);
      ADD_FAILURE() << optim << " takes " << args;
    } catch (const ConfigError& e) {
      EXPECT_NE(std::string(e.what()).find(part), std::string::npos) << e.what();
    }
  };
  EXPECT_NO_THROW(error("sgd", " momentum = 0.9 , nesterov=True"));
  EXPECT_NO_THROW(error("adamw", ""));
  says("adamw", "momentum=0.9", "AdamW has no 'momentum': it takes none");
  says("sgd", "beta=1", "it takes momentum, dampening, nesterov");
  says("sgd", "momentum", "expected word=value pairs");
  says("sgd", "momentum=0.9,momentum=0.8", "momentum is given twice");
  says("sgd", "momentum=much", "expected a number of at least 0, got 'much'");
  says("sgd", "nesterov=true", "nesterov of SGD needs a momentum above 0");
  says("sgd", "momentum=0.9,nesterov=maybe", "expected true or false");
  says("muon", "momentum=1", "expected a number from 0 to below 1");
  says("muon", "ns_steps=0", "expected a whole number from 1 to 99");
  says("muon", "adjust_lr_fn=none", "expected one of match_rms_adamw, original");
}

/// Codes are the map's nearest numbers, and elements with their block's largest magnitude are exact.
TEST(EightBits, KeepEachMomentWithinItsBlocksRounding) {
  constexpr std::int64_t n = 5000;
  const auto weights = at::zeros({n}, at::kDouble), grads = at::randn({n}, at::kDouble);
  Optimizer optimizer(rule_of("adamw_8bit"), {{"unit", weights, grads, {{0, n}}}}, {}, Precision::fp64());
  optimizer.step(1e-2, 1.0);
  const auto held = optimizer.held_states(0, 0);
  ASSERT_EQ(held.size(), 4U);
  const auto map = ops::dynamic_map(true);
  for (std::int64_t i = 0; i < n; ++i) {
    const double largest = held[2].values[i / 256].item<double>(), moment = 0.1 * grads[i].item<double>();
    const auto decoded = static_cast<double>(map.at(held[0].values[i].item<std::uint8_t>()));
    const auto nearest = std::min_element(map.begin(), map.end(), [&](float a, float b) {
      return std::abs(static_cast<double>(a) - moment / largest) < std::abs(static_cast<double>(b) - moment / largest);
    });
    ASSERT_NEAR(decoded, static_cast<double>(*nearest), 1e-6) << "element " << i;
  }
}

Schedule schedule(const char* name, double peak, std::int64_t warmup, std::int64_t total, bool log_warmup = false) {
  Schedule base;
  base.peak = peak;
  base.warmup_steps = warmup;
  base.total_steps = total;
  base.log_warmup = log_warmup;
  return make_schedule(name, nullptr, base);
}

// The values of deepspeed.runtime.lr_schedules.WarmupLR with warmup_type "log": log(i + 1) / log(warmup_num_steps).
TEST(Schedule, WarmsUpByTheLogarithmAsDeepSpeed) {
  const Schedule s = schedule("constant_with_warmup", 2.0, 10, 110, /*log_warmup=*/true);
  EXPECT_DOUBLE_EQ(s.at(0), 0.0);
  EXPECT_DOUBLE_EQ(s.at(1), 2.0 * 0.30102999566398120);
  EXPECT_DOUBLE_EQ(s.at(4), 2.0 * 0.69897000433601880);
  EXPECT_DOUBLE_EQ(s.at(9), 2.0);
  EXPECT_DOUBLE_EQ(s.at(10), 2.0);
  EXPECT_DOUBLE_EQ(schedule("linear", 2.0, 1, 3, true).at(0), 0.0);
}

TEST(Schedule, RefusesWhatTheScheduleDoesNotTake) {
  const auto error = [](const char* name, const nlohmann::json& kwargs) {
    try {
      make_schedule(name, kwargs, {});
    } catch (const ConfigError& e) {
      return std::string(e.what());
    }
    return std::string("nothing");
  };
  const auto says = [](const std::string& text, const char* part) { EXPECT_NE(text.find(part), std::string::npos) << text; };
  says(error("greedy", {}), "use one of linear, cosine, cosine_with_restarts");
  says(error("linear", {{"num_cycles", 2}}), "linear has no 'num_cycles': it takes none");
  says(error("cosine", {{"cycles", 2}}), "it takes num_cycles");
  says(error("cosine", {{"num_cycles", "two"}}), "expected a number of at least 0, got \"two\"");
  says(error("cosine", "num_cycles"), "expected a mapping");
  says(error("cosine_with_min_lr", {}), "either min_lr, a learning rate, or min_lr_rate");
  says(error("cosine_with_min_lr", {{"min_lr", 1e-6}, {"min_lr_rate", 0.1}}), "either min_lr");
  says(error("polynomial", {{"lr_end", 1.0}}), "it must be smaller");
  says(error("warmup_stable_decay", {}), "num_decay_steps of warmup_stable_decay: expected");
  says(error("warmup_stable_decay", {{"num_decay_steps", 5}, {"decay_type", "sqrt"}}), "linear, cosine or 1-sqrt");
}

}  // namespace
}  // namespace qft::optim
