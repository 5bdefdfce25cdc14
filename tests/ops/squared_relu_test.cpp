#include "qft/ops/activation.h"

#include <limits>

#include "ops_support.h"
#include <ATen/TensorOperators.h>
#include <ATen/ops/relu.h>

namespace qft::ops {
namespace {

using namespace testing;

at::Tensor squared_relu(const std::vector<at::Tensor>& in) {
  return at::relu(in[0]).square();
}

TEST(SquaredRelu, AgreesWithAutograd) {
  for (const at::ScalarType dtype : kDtypes)
    for (const auto& [rows, width] : std::vector<std::pair<int, int>>{{1, 1536}, {5, 16}, {3, 37}, {0, 8}}) {
      const at::Tensor x = randn({rows, width}, dtype, 1, 3.0), gact = randn({rows, width}, dtype, 2);
      if (rows > 0) x[0][0].zero_();
      const Oracle oracle = differentiate(squared_relu, {x}, gact);
      const at::Tensor act = empty(x.sizes(), dtype), gx = empty(x.sizes(), dtype);
      squared_relu_forward(x, act);
      squared_relu_backward(x, gact, gx);
      if (rows == 0) continue;
      const double one_rounding = dtype == at::kBFloat16 ? kOneRounding : tolerance(dtype);
      expect_close(act, oracle.value, one_rounding, "act");
      expect_close(gx, oracle.grads[0], one_rounding, "gradient");
      EXPECT_TRUE(act.equal(squared_relu({x}))) << "transformers' roundings";
      squared_relu_backward(x, gact, x);
      EXPECT_TRUE(x.equal(gx)) << "over its input";
    }
}

TEST(SquaredRelu, PassesNanOn) {
  for (const at::ScalarType dtype : kDtypes) {
    const at::Tensor x = randn({2, 40}, dtype, 1), gact = randn({2, 40}, dtype, 2), act = zeros({2, 40}, dtype);
    x[1][3].fill_(std::numeric_limits<double>::quiet_NaN());
    squared_relu_forward(x, act);
    squared_relu_backward(x, gact, x);
    EXPECT_TRUE(act[1][3].isnan().item<bool>() && x[1][3].isnan().item<bool>());
    EXPECT_EQ(act.isnan().sum().item<std::int64_t>() + x.isnan().sum().item<std::int64_t>(), 2);
  }
}

}  // namespace
}  // namespace qft::ops
