// Reads of logits over a vocabulary that ranks may share.
#include "qft/ops/generic.h"
#include "qft/ops/head.h"

#include <algorithm>
#include <limits>
#include <tuple>

#include <ATen/TensorOperators.h>
#include <ATen/ops/amax.h>
#include <ATen/ops/argmax.h>
#include <ATen/ops/full.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/topk.h>
#include <ATen/ops/zeros.h>

namespace qft::ops {

void HeadChunk::sum_over_vocabulary(const at::Tensor& t) const {
  if (vocabulary.shared()) vocabulary.add(t);
}

void HeadChunk::max_over_vocabulary(const at::Tensor& t) const {
  if (vocabulary.shared()) vocabulary.maximum(t);
}

at::Tensor HeadChunk::log_softmax(const at::Tensor& rows, at::ScalarType type) const {
  if (!vocabulary.shared()) return at::log_softmax(rows, 1, type);
  const at::Tensor maxima = at::amax(rows, 1).to(type);
  max_over_vocabulary(maxima);
  at::Tensor shifted = rows.to(type) - maxima.unsqueeze(1);
  const at::Tensor sums = shifted.exp().sum(1);
  sum_over_vocabulary(sums);
  return shifted.sub_(sums.log().unsqueeze(1));
}

at::Tensor HeadChunk::likeliest_tokens() const {
  const at::Tensor own = at::argmax(logits, 1);
  if (!vocabulary.shared()) return own;
  const at::Tensor largest = logits.gather(1, own.unsqueeze(1)).squeeze(1).to(generic::accumulate_dtype(logits.scalar_type()));
  const at::Tensor over_all = largest.clone();
  max_over_vocabulary(over_all);
  // The maximum of the negated tokens is the lowest token; fp64 holds each token exactly.
  const at::Tensor candidates =
      (own + vocabulary.first).neg_().to(at::kDouble).masked_fill_(largest.ne(over_all), -static_cast<double>(vocabulary.whole));
  max_over_vocabulary(candidates);
  return candidates.neg_().to(at::kLong);
}

at::Tensor HeadChunk::largest_logits(std::int64_t count) const {
  const auto largest = [](const at::Tensor& rows, std::int64_t most) {
    return std::get<0>(at::topk(rows, std::min(most, rows.size(1)), /*dim=*/1));
  };
  const at::Tensor own = largest(logits, count);
  if (!vocabulary.shared()) return own;
  // Each part fills in its own columns of the candidates.
  const at::Tensor candidates =
      at::zeros({size(), vocabulary.parts * count}, logits.options().dtype(generic::accumulate_dtype(logits.scalar_type())));
  const at::Tensor columns = candidates.narrow(1, vocabulary.part * count, count);
  columns.fill_(-std::numeric_limits<double>::infinity());
  columns.narrow(1, 0, own.size(1)).copy_(own);
  sum_over_vocabulary(candidates);
  return largest(candidates, std::min(count, vocabulary.whole));
}

}  // namespace qft::ops
