#include "principal_factors.h"

#include "qft/core/error.h"

#include <tuple>

#include <ATen/TensorOperators.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/linalg_qr.h>
#include <ATen/ops/linalg_svd.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/where.h>

namespace qft::model {
namespace {

at::Tensor orthonormal(const at::Tensor& columns) {
  return std::get<0>(at::linalg_qr(columns));
}

/// Returns U [out, rank], S [rank], V^T [rank, in] of the largest singular values.
std::tuple<at::Tensor, at::Tensor, at::Tensor> largest(const at::Tensor& w, std::int64_t rank, std::int64_t iterations,
                                                       const at::Tensor& start) {
  if (iterations < 0) {
    const auto [u, s, vt] = at::linalg_svd(w, /*full_matrices=*/false);
    return {u.narrow(1, 0, rank), s.narrow(0, 0, rank), vt.narrow(0, 0, rank)};
  }
  at::Tensor basis = orthonormal(at::mm(w, start.t()));
  for (std::int64_t i = 0; i < iterations; ++i) basis = orthonormal(at::mm(w, orthonormal(at::mm(w.t(), basis))));
  const auto [u, s, vt] = at::linalg_svd(at::mm(basis.t(), w), /*full_matrices=*/false);
  return {at::mm(basis, u), s, vt};
}

}  // namespace

PrincipalFactors principal_factors(const at::Tensor& weight, std::int64_t rank, double scaling, std::int64_t iterations,
                                   const at::Tensor& start) {
  require(at::isfinite(weight).all().item<bool>(), "the weight is not finite: PiSSA cannot decompose it");
  const auto [u, s, vt] = largest(weight, rank, iterations, start);
  const at::Tensor extreme = vt.gather(1, vt.abs().argmax(1, /*keepdim=*/true)).squeeze(1);
  const at::Tensor factors = s.div(scaling).sqrt() * at::where(extreme.lt(0.0), -1.0, 1.0).to(s.scalar_type());
  return {(factors.unsqueeze(1) * vt).contiguous(), (u * factors).contiguous()};
}

}  // namespace qft::model
