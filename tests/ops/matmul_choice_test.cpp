#include "qft/ops/matmul_choice.h"

#include "ops_support.h"
#include <ATen/Context.h>
#include <ATen/ops/matmul.h>

namespace qft::ops {
namespace {

using namespace testing;

TEST(MatmulChoice, KeepsTheAccuracyOfFp32) {
  const auto enabled = [] { return at::globalContext().float32MatmulPrecision() == at::Float32MatmulPrecision::MEDIUM; };
  const bool onednn = choose_fp32_matmul();
  EXPECT_EQ(enabled(), onednn);
  at::globalContext().setFloat32MatmulPrecision("highest");
  EXPECT_EQ(choose_fp32_matmul(), onednn);
  EXPECT_EQ(enabled(), onednn) << "after another run's start";
  const at::Tensor a = randn({65, 700}, at::kFloat, 1), b = randn({700, 33}, at::kFloat, 2);
  expect_close(at::matmul(a, b), at::matmul(a.to(at::kDouble), b.to(at::kDouble)).to(at::kFloat), 1e-5, "product");
}

}  // namespace
}  // namespace qft::ops
