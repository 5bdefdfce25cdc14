// Products of fp16 or bf16 matrices with fp32 results.
#include "queue_work.h"
#include "torch_kernels.h"
#include <ATen/ATen.h>

namespace qft::sim {
namespace {

at::Tensor& addmm_dtype_out(const at::Tensor& self, const at::Tensor& a, const at::Tensor& b, at::ScalarType dtype,
                            const at::Scalar& beta, const at::Scalar& alpha, at::Tensor& out) {
  TORCH_CHECK(a.dim() == 2 && b.dim() == 2 && a.size(1) == b.size(0), "mat1 and mat2 shapes cannot be multiplied: ", a.sizes(),
              ", ", b.sizes());
  TORCH_CHECK(a.scalar_type() == b.scalar_type(), "mat1 and mat2 must have the same dtype: ", a.scalar_type(), ", ",
              b.scalar_type());
  const bool half = a.scalar_type() == at::kHalf || a.scalar_type() == at::kBFloat16;
  TORCH_CHECK(dtype == a.scalar_type() || (dtype == at::kFloat && half),
              "out_dtype must be the same as input dtype or fp32 for fp16/bf16 inputs");
  TORCH_CHECK(dtype == out.scalar_type(), "out_dtype must be the same as the dtype of the provided out tensor");
  TORCH_CHECK(self.scalar_type() == dtype || self.scalar_type() == a.scalar_type(),
              "self dtype must match either out_dtype or mat1 dtype");
  TORCH_CHECK(out.dim() == 2 && out.size(0) == a.size(0) && out.size(1) == b.size(1), "out has sizes ", out.sizes());
  queue_work("addmm.dtype_out", {self, a, b}, {out}, [beta, alpha](const Tensors& t) {
    const auto exact = [&](int i) { return t[static_cast<std::size_t>(i)].to(at::kDouble); };
    t[3].copy_(at::addmm(exact(0), exact(1), exact(2), beta, alpha));
  });
  return out;
}

}  // namespace

void register_products(torch::Library& aten) {
  aten.impl("addmm.dtype_out", &addmm_dtype_out);
}

}  // namespace qft::sim
