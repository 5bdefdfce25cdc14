#include "qft/optim/optimizer.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

namespace qft::optim {
namespace {

/// Returns a [40, 24] matrix after six steps, two per set of vectors; every other gradient has rank 4. `noise` models the
/// different rounding of another layout of ranks.
at::Tensor trained(const char* args, double noise) {
  at::manual_seed(3);
  const at::Tensor weights = at::zeros({960}, at::kDouble), grads = at::zeros({960}, at::kDouble);
  Optimizer galore(rule_of("galore_adamw"), {{"unit", weights, grads, {{0, 960, 1.0, 1.0, {{40, 24}}}}}},
                   {.args = RuleArgs(args)}, Precision::fp64());
  for (int step = 0; step < 6; ++step) {
    const at::Tensor low = at::mm(at::randn({40, 4}, at::kDouble), at::randn({4, 24}, at::kDouble)),
                     all = at::randn({40, 24}, at::kDouble), rounding = at::randn({40, 24}, at::kDouble);
    grads.copy_(((step % 2 == 0 ? low : all) + rounding * noise).view(-1));
    galore.step(1e-2, 1.0);
  }
  return weights;
}

TEST(GaLore, DoesNotLetRoundingChooseVectors) {
  for (const char* args : {"rank=7,update_proj_gap=2", "rank=4,update_proj_gap=2", "rank=7,update_proj_gap=2,proj_type=left"}) {
    const at::Tensor exact = trained(args, 0.0);
    EXPECT_GT(exact.abs().min().item<double>(), 0.0);
    for (const double noise : {1e-16, 3e-16, -1e-16})
      EXPECT_LT((trained(args, noise) - exact).abs().max().item<double>(), 1e-9) << args;
  }
}

}  // namespace
}  // namespace qft::optim
