#include "qft/ops/matmul_choice.h"

#include "matmul_blocked_cpu.h"
#include <ATen/Context.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/mm.h>

namespace qft::ops {
namespace {

/// Returns the largest error in a typical product.
double trial_error() {
  const at::NoGradGuard no_grad;
  constexpr std::int64_t kRows = 128, kInner = 512, kColumns = 256;
  // Values that use all bits of a float and leave the process's generator alone.
  const auto values = [](std::int64_t rows, std::int64_t columns, double step) {
    return at::arange(rows * columns, at::kDouble).mul_(step).sin_().view({rows, columns}).to(at::kFloat);
  };
  const at::Tensor a = values(kRows, kInner, 0.7310), b = values(kColumns, kInner, 1.3770);
  const at::Tensor exact = at::mm(a.to(at::kDouble), b.to(at::kDouble).t());
  return at::mm(a, b.t()).to(at::kDouble).sub_(exact).abs_().max().item<double>();
}

bool try_onednn() {
  constexpr double kAsAccurate = 1.5;  // twice the error is visible in gradients
  const double usual = trial_error();
  at::globalContext().setFloat32MatmulPrecision("medium");
  if (trial_error() <= kAsAccurate * usual) return true;
  at::globalContext().setFloat32MatmulPrecision("highest");
  return false;
}

}  // namespace

bool choose_fp32_matmul() {
  static const bool chosen = try_onednn();
  // Each run of a sweep sets its own precision first, so this is set again.
  at::globalContext().setFloat32MatmulPrecision(chosen ? "medium" : "highest");
  return chosen;
}

bool blocked_bf16_matmul() {
  return blocked::available(at::kBFloat16);
}

std::int64_t operand_copy_bytes(std::int64_t m, std::int64_t k, at::ScalarType dtype) {
  return dtype == at::kBFloat16 && blocked_bf16_matmul() ? blocked::operand_copy_bytes(m, k) : 0;
}

}  // namespace qft::ops
