#include "qft/optim/square_sum.h"

#include <algorithm>
#include <numeric>
#include <vector>

#include <ATen/ops/cat.h>
#include <ATen/ops/linalg_vector_norm.h>

#include "cuda/kernels.h"

namespace qft::optim {
namespace {

/// Of one tensor, [1] on its device.
at::Tensor by_aten(const at::Tensor& values) {
  // In pieces: ATen makes an fp64 copy of what it is given.
  constexpr std::int64_t kPiece = 1 << 20;
  at::Tensor total;
  for (std::int64_t first = 0; first < values.numel(); first += kPiece) {
    const at::Tensor piece = values.narrow(0, first, std::min(kPiece, values.numel() - first));
    const at::Tensor part = at::linalg_vector_norm(piece, 2, at::OptionalIntArrayRef(), false, at::kDouble).square();
    total = total.defined() ? total.add_(part) : part;
  }
  return total.reshape({1});
}

}  // namespace

double square_sum(at::TensorList tensors) {
  std::vector<at::Tensor> parts;
  for (const at::Tensor& values : tensors) {
    if (values.numel() == 0) continue;
    const at::Tensor by_kernel = cuda::square_parts(values);
    parts.push_back(by_kernel.defined() ? by_kernel : by_aten(values));
  }
  if (parts.empty()) return 0.0;
  const at::Tensor all = at::cat(parts).cpu();
  const double* first = all.const_data_ptr<double>();
  return std::accumulate(first, first + all.numel(), 0.0);
}

}  // namespace qft::optim
