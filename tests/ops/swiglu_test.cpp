#include "qft/ops/activation.h"

#include <limits>

#include "ops_support.h"
#include <ATen/TensorOperators.h>
#include <ATen/ops/silu.h>

namespace qft::ops {
namespace {

using namespace testing;

at::Tensor swiglu(const std::vector<at::Tensor>& in) {
  const std::int64_t width = in[0].size(1) / 2;
  return at::silu(in[0].narrow(1, 0, width)) * in[0].narrow(1, width, width);
}

TEST(Swiglu, AgreesWithAutograd) {
  for (const at::ScalarType dtype : kDtypes) {
    for (const auto& [rows, width] : std::vector<std::pair<int, int>>{{1, 1536}, {5, 16}, {3, 37}, {2, 1}}) {
      const at::Tensor gate_up = randn({rows, 2 * width}, dtype, 1, 3.0), gact = randn({rows, width}, dtype, 2);
      const Oracle oracle = differentiate(swiglu, {gate_up}, gact);
      const at::Tensor act = empty({rows, width}, dtype), again = empty({rows, width}, dtype);
      swiglu_forward(gate_up, act);
      expect_close(act, oracle.value, tolerance(dtype), "act");
      const at::Tensor grad = empty(gate_up.sizes(), dtype);
      swiglu_backward(gate_up, gact, grad, again);
      expect_close(grad, oracle.grads[0], tolerance(dtype), "gate_up gradient");
      EXPECT_TRUE(again.equal(act));
    }
  }
}

TEST(Swiglu, BackwardMayOverwriteItsInputs) {
  for (const at::ScalarType dtype : kDtypes) {
    const at::Tensor gate_up = randn({9, 2 * 43}, dtype, 1), gact = randn({9, 43}, dtype, 2);
    const at::Tensor grad = empty(gate_up.sizes(), dtype), act = empty(gact.sizes(), dtype);
    swiglu_backward(gate_up, gact, grad, act);
    swiglu_backward(gate_up, gact, gate_up, gact);
    EXPECT_TRUE(gate_up.equal(grad));
    EXPECT_TRUE(gact.equal(act));
  }
}

TEST(Swiglu, SurvivesExtremeGates) {
  for (const at::ScalarType dtype : kDtypes) {
    const at::Tensor gate_up = zeros({1, 32}, dtype);
    gate_up.narrow(1, 0, 8).fill_(-1e4);
    gate_up.narrow(1, 8, 8).fill_(1e4);
    gate_up.narrow(1, 16, 16).fill_(1.0);
    const at::Tensor act = empty({1, 16}, dtype), grad = empty({1, 32}, dtype), ones = zeros({1, 16}, dtype);
    ones.fill_(1.0);
    swiglu_forward(gate_up, act);
    swiglu_backward(gate_up, ones, grad, {});
    expect_close(act, swiglu({gate_up.to(at::kDouble)}), tolerance(dtype), "act");
    EXPECT_TRUE(grad.isfinite().all().item<bool>());
  }
}

TEST(Swiglu, PassesNanOn) {
  for (const at::ScalarType dtype : kDtypes) {
    const at::Tensor gate_up = randn({2, 80}, dtype, 1), act = randn({2, 40}, dtype, 2), grad = zeros({2, 80}, dtype);
    gate_up[1][3].fill_(std::numeric_limits<double>::quiet_NaN());
    swiglu_backward(gate_up, act, grad, {});
    swiglu_forward(gate_up, act);
    EXPECT_TRUE(act[1][3].isnan().item<bool>() && grad[1][3].isnan().item<bool>());
    EXPECT_EQ(act.isnan().sum().item<std::int64_t>(), 1);
  }
}

}  // namespace
}  // namespace qft::ops
