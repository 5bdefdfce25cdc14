#include <limits>

#include "ops_support.h"
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/normal.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/autograd.h>

namespace qft::ops::testing {

double tolerance(at::ScalarType dtype) {
  if (dtype == at::kDouble) return 1e-12;
  return dtype == at::kFloat ? 5e-6 : 6e-3;
}

at::Tensor randn(at::IntArrayRef shape, at::ScalarType dtype, std::uint64_t seed, double scale) {
  return at::normal(0.0, scale, shape, at::detail::createCPUGenerator(seed), at::kDouble).to(dtype);
}

at::Tensor empty(at::IntArrayRef shape, at::ScalarType dtype) {
  // Filled with NaN, to detect values that nobody wrote.
  return at::empty(shape, at::TensorOptions(dtype)).fill_(std::numeric_limits<double>::quiet_NaN());
}

at::Tensor zeros(at::IntArrayRef shape, at::ScalarType dtype) {
  return at::zeros(shape, at::TensorOptions(dtype));
}

at::Tensor int32s(const std::vector<std::int32_t>& values) {
  at::Tensor out = at::empty({static_cast<std::int64_t>(values.size())}, at::TensorOptions(at::kInt));
  std::copy(values.begin(), values.end(), out.data_ptr<std::int32_t>());
  return out;
}

at::ScalarType statistics_dtype(at::ScalarType dtype) {
  return dtype == at::kDouble ? at::kDouble : at::kFloat;
}

at::Tensor exact_product(const at::Tensor& a, const at::Tensor& b) {
  return at::matmul(a.to(at::kDouble), b.to(at::kDouble));
}

double relative_error(const at::Tensor& actual, const at::Tensor& expected) {
  const at::Tensor a = actual.detach().to(at::kDouble), e = expected.detach().to(at::kDouble);
  const double error = (a - e).norm().item<double>(), size = e.norm().item<double>();
  if (!(error < std::numeric_limits<double>::infinity())) return std::numeric_limits<double>::infinity();
  return size == 0 ? error : error / size;
}

void expect_close(const at::Tensor& actual, const at::Tensor& expected, double tolerance, const char* what) {
  ASSERT_EQ(actual.sizes(), expected.sizes()) << what;
  EXPECT_LE(relative_error(actual, expected), tolerance) << what << " in " << c10::toString(actual.scalar_type());
}

Oracle differentiate(const Function& f, const std::vector<at::Tensor>& inputs, const at::Tensor& gout) {
  std::vector<at::Tensor> leaves;
  for (const at::Tensor& t : inputs) leaves.push_back(t.detach().to(at::kDouble).clone().requires_grad_(true));
  const at::Tensor value = f(leaves);
  return {value.detach(), torch::autograd::grad({value}, leaves, {gout.to(at::kDouble)})};
}

}  // namespace qft::ops::testing
