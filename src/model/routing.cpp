#include "qft/model/routing.h"

#include "qft/device/upload.h"

#include <algorithm>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/special_entr.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

namespace qft::model {
namespace {

/// Moves x [T, ...] to `rows` rows if sequences share rows; else returns x.
template <class F>
at::Tensor moved(const F& move, const at::Tensor& x, const ops::SharedRows& shared, std::int64_t rows) {
  if (!shared.any()) return x;
  std::vector<std::int64_t> sizes = x.sizes().vec();
  sizes[0] = rows;
  const at::Tensor to = at::empty(sizes, x.options());
  move(x, shared, to);
  return to;
}
/// Returns x for each token, given x for each row.
at::Tensor of_tokens(const at::Tensor& x, const Routing& r) {
  if (r.rows.defined()) return at::index_select(x, 0, r.rows);
  return moved(ops::expand_rows, x, r.shared, r.shared.tokens);
}
/// Returns the sums of x over the tokens of each row.
at::Tensor of_rows(const at::Tensor& x, const Routing& r) {
  if (!r.rows.defined()) return moved(ops::sum_tokens, x, r.shared, r.shared.rows);
  std::vector<std::int64_t> sizes = x.sizes().vec();
  sizes[0] = r.rows_here;
  return at::zeros(sizes, x.options()).index_add_(0, r.rows, x);
}

/// The tokens whose rows a rank has.
struct TokensHere {
  std::vector<std::int64_t> sequences, rows;
};

TokensHere tokens_here(const ops::PackedSequences& sequences, const OwnRows& own) {
  const std::vector<std::int32_t>& cu_seqlens = sequences.cu_seqlens;
  TokensHere here;
  for (std::size_t s = 0; s + 1 < cu_seqlens.size(); ++s)
    for (std::int64_t token = cu_seqlens[s]; token < cu_seqlens[s + 1]; ++token)
      if (const std::int64_t row = sequences.shared.row_of(token); row >= own.first && row < own.end()) {
        here.sequences.push_back(static_cast<std::int64_t>(s));
        here.rows.push_back(row - own.first);
      }
  return here;
}

}  // namespace

Routing Routing::build(const ModelConfig& config, const ops::PackedSequences& sequences, at::ScalarType statistics,
                       c10::Device device, const RowSharing& tensor, const RowSharing& context) {
  const std::int64_t experts = config.experts.count;
  if (experts == 0) return {};
  const std::vector<std::int32_t>& cu_seqlens = sequences.cu_seqlens;
  std::vector<std::int64_t> sequence, lengths;
  for (std::size_t s = 0; s + 1 < cu_seqlens.size(); ++s) {
    sequence.resize(static_cast<std::size_t>(cu_seqlens[s + 1]), static_cast<std::int64_t>(s));
    lengths.push_back(cu_seqlens[s + 1] - cu_seqlens[s]);
  }
  const auto options = at::TensorOptions().dtype(statistics).device(device);
  const std::int64_t count = sequences.num_sequences();
  Routing r;
  r.shared = sequences.shared;
  if (!tensor.alone() || !context.alone()) {
    const OwnRows of_context = context.rows_of(sequences.num_rows());
    OwnRows own = tensor.rows_of(of_context.count);
    own.first += of_context.first;
    TokensHere here = tokens_here(sequences, own);
    r.rows = device::upload(here.rows, device);
    r.rows_here = own.count;
    sequence = std::move(here.sequences);
  }
  r.sequence = device::upload(sequence, device);
  r.lengths = device::upload(lengths, device).to(statistics);
  r.chosen = at::zeros({count, experts}, options);
  r.probability = at::zeros({count, experts}, options);
  r.load = at::zeros({config.num_layers, experts}, options);
  r.entropy = at::zeros({1}, options);
  r.square = at::zeros({1}, options);
  r.sparse_layers = std::ranges::count(config.sparse, true);
  return r;
}

void Routing::add(std::int64_t layer, const at::Tensor& row_probabilities, const at::Tensor& row_experts,
                  const at::Tensor& row_log_sums) const {
  if (row_probabilities.size(0) == 0) return;  // the other ranks have all rows
  const at::Tensor probabilities = of_tokens(row_probabilities, *this), log_sums = of_tokens(row_log_sums, *this);
  const at::Tensor places = sequence.unsqueeze(1) * experts() + of_tokens(row_experts, *this);
  const at::Tensor counts = at::zeros_like(chosen);
  counts.view({-1}).scatter_add_(0, places.view({-1}), at::ones({places.numel()}, counts.options()));
  chosen.add_(counts);
  load.select(0, layer).add_(counts.sum(0));
  probability.index_add_(0, sequence, probabilities);
  entropy.add_(at::special_entr(probabilities).sum());
  square.add_((log_sums * log_sums).sum());
}

void Routing::add_up(const RowSharing& tensor, const RowSharing& context) const {
  if (!observed() || (tensor.alone() && context.alone())) return;
  const std::initializer_list<at::Tensor> parts = {chosen, probability, load, entropy, square};
  std::vector<at::Tensor> flat;
  for (const at::Tensor& part : parts) flat.push_back(part.view({-1}));
  const at::Tensor all = at::cat(flat);
  tensor.sum(all);
  context.sum(all);
  std::int64_t next = 0;
  for (const at::Tensor& part : flat) {
    part.copy_(all.narrow(0, next, part.numel()));
    next += part.numel();
  }
}

at::Tensor Routing::balance_loss() const {
  const double scale = static_cast<double>(experts()) / static_cast<double>(sparse_layers * sparse_layers);
  return at::sum((chosen * probability).sum(1) / lengths, at::kDouble).mul_(scale).view({1});
}

at::Tensor Routing::balance_gradient() const {
  const double scale = static_cast<double>(experts()) / static_cast<double>(sparse_layers * sparse_layers);
  return of_rows(at::index_select(chosen * (scale / lengths.unsqueeze(1)), 0, sequence), *this);
}

at::Tensor Routing::square_gradient(const at::Tensor& log_sums) const {
  return of_rows(of_tokens(log_sums, *this) * 2.0, *this);
}

}  // namespace qft::model
