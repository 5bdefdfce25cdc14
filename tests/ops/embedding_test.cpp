#include "qft/ops/embedding.h"

#include "qft/core/error.h"

#include "ops_support.h"
#include <ATen/TensorOperators.h>

namespace qft::ops {
namespace {

using namespace testing;

TEST(Embedding, AgreesWithAutogradWithRepeatedTokens) {
  const at::Tensor tokens = int32s({5, 0, 5, 5, 10, 3, 0});
  for (const at::ScalarType dtype : kDtypes) {
    const at::Tensor weight = randn({11, 24}, dtype, 1), gy = randn({7, 24}, dtype, 2), y = empty(gy.sizes(), dtype);
    const Oracle oracle = differentiate(
        [&](const std::vector<at::Tensor>& in) { return in[0].index_select(0, tokens.to(at::kLong)); }, {weight}, gy);
    embedding_forward(tokens, weight, y);
    EXPECT_TRUE(y.to(at::kDouble).equal(oracle.value));
    for (const at::ScalarType grad_dtype : {dtype, statistics_dtype(dtype)}) {
      const at::Tensor grad = randn(weight.sizes(), grad_dtype, 3), before = grad.clone();
      embedding_backward(tokens, gy, grad);
      expect_close(grad, before + oracle.grads[0], tolerance(grad_dtype), "gweight");
      EXPECT_TRUE(grad[1].equal(before[1]));
    }
  }
}

TEST(Embedding, BackwardIsReproducible) {
  std::vector<std::int32_t> ids;
  for (int i = 0; i < 500; ++i) ids.push_back(i * 7 % 13);
  const at::Tensor gy = randn({500, 40}, at::kFloat, 1), first = zeros({13, 40}, at::kFloat), second = first.clone();
  embedding_backward(int32s(ids), gy, first);
  embedding_backward(int32s(ids), gy, second);
  EXPECT_TRUE(first.equal(second));
}

TEST(Embedding, RefusesATokenOutsideTheTable) {
  const at::Tensor weight = randn({4, 8}, at::kFloat, 1), y = empty({1, 8}, at::kFloat);
  EXPECT_THROW(embedding_forward(int32s({4}), weight, y), Error);
  EXPECT_THROW(embedding_forward(int32s({-1}), weight, y), Error);
}

}  // namespace
}  // namespace qft::ops
