// Checks the optimizers' rules and the norm of gradients on the device.
#include "qft/optim/optimizer.h"
#include "qft/optim/square_sum.h"

#include <algorithm>
#include <array>
#include <span>
#include <string_view>

#include "runner.h"
#include "values.h"
#include <ATen/TensorOperators.h>

namespace qft::selftest {
namespace {

constexpr const char* kOptimizersReport =
    "train with another optim or with 'offload_optimizer: cpu', which updates on the host; report this line with the output of "
    "qft --version";
constexpr Subject kRule{"optimizers", "update",
                        "weights move by other amounts than the gradients say: the loss stalls or diverges", kOptimizersReport};
constexpr Subject kNorm{"optimizers", "gradient norm", "clipping scales every update wrongly, and the log's grad_norm is wrong",
                        kOptimizersReport};

struct Types {
  const char* name;
  optim::Precision precision;
};

/// Scales of the gradients, one per step.
constexpr std::array kScales = {1.0, 0.5, 2.0};

/// With quantised moments a last bit may decide between two codes, and the next step would show the difference.
std::span<const double> scales_for(const optim::RuleSpec& rule) {
  const std::span<const double> all = kScales;
  return rule.optim.front() == std::string_view("adamw_8bit") ? all.first(1) : all;
}

/// Runs a few steps in two segments. Gradients keep their signs, so that rounding turns none.
void check_rule(Runner& runner, std::string_view rule, const Types& types, std::int64_t count, std::int64_t shift) {
  const optim::Precision& p = types.precision;
  const std::string setting = fmt::format("{}, {}, {} elements{}", rule, types.name, count, shift > 0 ? ", not aligned" : "");
  runner.check(kRule, setting, [&](Outcome& out) {
    Values values(runner.device(), p.compute), grads(runner.device(), p.grad);
    const optim::Hyper hyper{.weight_decay = 0.1};
    const std::vector<optim::Segment> segments = {{0, (count + 1) / 2}, {(count + 1) / 2, count, 0.5, 0.0}};
    const auto w = values.shifted({count}, shift);
    const auto drawn = grads.shifted({count}, shift);
    const at::Tensor gradient = drawn.here.clone(), want_gradient = drawn.exact.clone(), want_w = w.exact.clone();
    const optim::RuleSpec& row = optim::rule_of(rule);
    optim::Optimizer ours(row, {{"unit", w.here, gradient, segments}}, hyper, p);
    optim::Optimizer want(row, {{"unit", want_w, want_gradient, segments}}, hyper, optim::Precision::fp64());
    for (const double scale : scales_for(row)) {
      gradient.copy_(drawn.here).mul_(scale);
      want_gradient.copy_(drawn.exact).mul_(scale);
      ours.step(1e-2, 0.5);
      want.step(1e-2, 0.5);
    }
    // Each step rounds the masters; updates of equal size round to the same side.
    const double roundings = kScales.size();
    out.compare("the masters", ours.master(0), want.master(0), roundings * limits_of(p.master).elementwise);
    for (const optim::Segment& segment : segments) {
      const auto held = ours.held_states(0, segment.begin), wanted = want.held_states(0, segment.begin);
      for (std::size_t s = 0; s < held.size(); ++s)
        if (const at::ScalarType type = held[s].spec.type; type != at::kByte)
          out.compare(held[s].spec.name, held[s].values, wanted[s].values, roundings * limits_of(type).elementwise);
    }
    out.compare("the weights", w.here, ours.master(0), limits_of(p.compute).elementwise);
  });
}

void check_norm(Runner& runner, at::ScalarType type) {
  runner.check(kNorm, fmt::format("{}, 1 + 131 + 1000003 elements", name_of(type)), [&](Outcome& out) {
    Values values(runner.device(), type);
    std::vector<at::Tensor> tensors;
    std::vector<double> want;
    for (const std::int64_t count : {1, 131, 1000003}) {
      const auto pair = values.shifted({count}, 3, 0.01);
      tensors.push_back(pair.here);
      want.push_back(pair.exact.square().sum().item<double>());
    }
    const std::vector<double> sums = optim::square_sums(tensors);
    for (std::size_t t = 0; t < want.size(); ++t)
      out.compare("the sum of squares", sums[t], want[t], limits_of(at::kDouble).elementwise);
  });
}

}  // namespace

void check_optimizers(Runner& runner) {
  const Types all[] = {{"fp64", optim::Precision::fp64()},
                       {"fp32", optim::Precision::fp32()},
                       {"bf16", optim::Precision::bf16()},
                       {"fp16", optim::Precision::fp16()},
                       {"pure_bf16", optim::Precision::pure_bf16()}};
  for (const optim::RuleSpec& rule : optim::rules())
    for (const Types& types : all) {
      if (std::ranges::find(runner.checked_types(), types.precision.compute) == runner.checked_types().end()) continue;
      check_rule(runner, rule.optim.front(), types, 1, 0);
      check_rule(runner, rule.optim.front(), types, 1029, 3);
      check_rule(runner, rule.optim.front(), types, 1000003, 0);
    }
  for (const at::ScalarType type : runner.checked_types()) check_norm(runner, type);
}

}  // namespace qft::selftest
