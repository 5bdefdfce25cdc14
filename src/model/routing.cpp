#include "qft/model/routing.h"

#include "qft/device/upload.h"

#include <algorithm>
#include <vector>

#include <ATen/TensorOperators.h>
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
at::Tensor of_tokens(const at::Tensor& x, const ops::SharedRows& shared) {
  return moved(ops::expand_rows, x, shared, shared.tokens);
}
/// Returns the sums of x over the tokens of each row.
at::Tensor of_rows(const at::Tensor& x, const ops::SharedRows& shared) {
  return moved(ops::sum_tokens, x, shared, shared.rows);
}

}  // namespace

Routing Routing::build(const ModelConfig& config, const ops::PackedSequences& sequences, at::ScalarType statistics,
                       c10::Device device) {
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
  const at::Tensor probabilities = of_tokens(row_probabilities, shared), log_sums = of_tokens(row_log_sums, shared);
  const at::Tensor places = sequence.unsqueeze(1) * experts() + of_tokens(row_experts, shared);
  const at::Tensor counts = at::zeros_like(chosen);
  counts.view({-1}).scatter_add_(0, places.view({-1}), at::ones({places.numel()}, counts.options()));
  chosen.add_(counts);
  load.select(0, layer).add_(counts.sum(0));
  probability.index_add_(0, sequence, probabilities);
  entropy.add_(at::special_entr(probabilities).sum());
  square.add_((log_sums * log_sums).sum());
}

at::Tensor Routing::balance_loss() const {
  const double scale = static_cast<double>(experts()) / static_cast<double>(sparse_layers * sparse_layers);
  return at::sum((chosen * probability).sum(1) / lengths, at::kDouble).mul_(scale).view({1});
}

at::Tensor Routing::balance_gradient() const {
  const double scale = static_cast<double>(experts()) / static_cast<double>(sparse_layers * sparse_layers);
  return of_rows(at::index_select(chosen * (scale / lengths.unsqueeze(1)), 0, sequence), shared);
}

at::Tensor Routing::square_gradient(const at::Tensor& log_sums) const {
  return of_rows(of_tokens(log_sums, shared) * 2.0, shared);
}

}  // namespace qft::model
