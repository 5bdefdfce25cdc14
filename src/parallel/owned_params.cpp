#include "owned_params.h"

#include <algorithm>

#include <ATen/ops/linalg_vector_norm.h>

namespace qft::parallel {

optim::FlatParams owned_params(const model::UnitSpec& unit, const at::Tensor& weights, const at::Tensor& grads,
                               std::int64_t begin) {
  optim::FlatParams flat{unit.name, weights, grads, {}, begin};
  const std::int64_t length = weights.numel();
  for (const auto& p : unit.params) {
    if (!p.trainable) continue;
    const std::int64_t first = std::max<std::int64_t>(p.offset - begin, 0), last = std::min(p.offset + p.numel - begin, length);
    if (first >= last) continue;
    auto& list = flat.segments;
    if (!list.empty() && list.back().decays == p.weight_decay) {
      list.back().end = last;
    } else {
      list.push_back({first, last, p.weight_decay});
    }
  }
  return flat;
}

double square_sum(const at::Tensor& values) {
  if (values.numel() == 0) return 0.0;
  // In pieces: ATen makes an fp64 copy of what it is given.
  constexpr std::int64_t kPiece = 1 << 20;
  at::Tensor total;
  for (std::int64_t first = 0; first < values.numel(); first += kPiece) {
    const at::Tensor piece = values.narrow(0, first, std::min(kPiece, values.numel() - first));
    const at::Tensor part = at::linalg_vector_norm(piece, 2, at::OptionalIntArrayRef(), false, at::kDouble).square();
    total = total.defined() ? total.add_(part) : part;
  }
  return total.item<double>();
}

}  // namespace qft::parallel
