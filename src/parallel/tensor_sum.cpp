#include "tensor_sum.h"

#include "qft/parallel/sharded_buffer.h"

#include <algorithm>

#include <ATen/ops/zeros.h>

namespace qft::parallel {
namespace {

/// Elements that are summed at a time.
constexpr std::int64_t kPiece = std::int64_t{1} << 23;

/// A term, and its place in the buffer in which the ranks sum. Ranks with the same boxes of a parameter have the same slot.
struct Term {
  at::Tensor values;
  std::int64_t slot = 0, slots = 1;
  std::int64_t room() const { return slots * values.numel(); }
};

/// Returns the parts of the terms here, none longer than a piece.
std::vector<Term> terms_of(const model::ModelSpec& spec, const std::vector<OwnedGrads>& owned) {
  std::vector<Term> terms;
  for (std::size_t u = 0; u < owned.size(); ++u) {
    const auto& [values, begin] = owned[u];
    if (!values.defined()) continue;
    for (const model::ParamSpec& p : spec.units[u].params) {
      if (!p.trainable || p.placement(comm::Axis::tensor) != model::GradPlacement::partial) continue;
      const std::int64_t last = std::min(p.offset + p.numel, begin + values.numel());
      for (std::int64_t first = std::max(p.offset, begin); first < last; first += kPiece)
        terms.push_back({values.narrow(0, first - begin, std::min(kPiece, last - first)), p.slot, p.slots});
    }
  }
  return terms;
}

void add_up(std::span<const Term> terms, std::int64_t room, const model::RowSharing& tensor) {
  const at::Tensor& first = terms.front().values;
  const at::Tensor sums = at::zeros({room}, first.options().dtype(wide(first.scalar_type())));
  const auto for_each = [&](const auto& f) {
    std::int64_t next = 0;
    for (const Term& t : terms) {
      f(t, sums.narrow(0, next + t.slot * t.values.numel(), t.values.numel()));
      next += t.room();
    }
  };
  for_each([](const Term& t, const at::Tensor& place) { place.copy_(t.values); });
  tensor.sum(sums);
  for_each([](const Term& t, const at::Tensor& place) { t.values.copy_(place); });
}

}  // namespace

void add_up_terms(const model::ModelSpec& spec, const std::vector<OwnedGrads>& owned, const model::RowSharing& tensor) {
  if (tensor.alone()) return;
  const std::vector<Term> terms = terms_of(spec, owned);
  for (std::size_t begin = 0, end = 0; begin < terms.size(); begin = end) {
    std::int64_t room = 0;
    for (; end < terms.size() && (end == begin || room + terms[end].room() <= kPiece); ++end) room += terms[end].room();
    add_up(std::span(terms).subspan(begin, end - begin), room, tensor);
  }
}

}  // namespace qft::parallel
