#include "qft/model/routing.h"

#include "qft/device/upload.h"

#include <algorithm>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/special_entr.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

namespace qft::model {

Routing Routing::build(const ModelConfig& config, std::span<const std::int32_t> cu_seqlens, at::ScalarType statistics,
                       c10::Device device) {
  const std::int64_t experts = config.experts.count;
  if (experts == 0) return {};
  std::vector<std::int64_t> sequence, lengths;
  for (std::size_t s = 0; s + 1 < cu_seqlens.size(); ++s) {
    sequence.resize(static_cast<std::size_t>(cu_seqlens[s + 1]), static_cast<std::int64_t>(s));
    lengths.push_back(cu_seqlens[s + 1] - cu_seqlens[s]);
  }
  const auto options = at::TensorOptions().dtype(statistics).device(device);
  const auto sequences = static_cast<std::int64_t>(lengths.size());
  Routing r;
  r.sequence = device::upload(sequence, device);
  r.lengths = device::upload(lengths, device).to(statistics);
  r.chosen = at::zeros({sequences, experts}, options);
  r.probability = at::zeros({sequences, experts}, options);
  r.load = at::zeros({config.num_layers, experts}, options);
  r.entropy = at::zeros({1}, options);
  r.square = at::zeros({1}, options);
  r.sparse_layers = std::ranges::count(config.sparse, true);
  return r;
}

void Routing::add(std::int64_t layer, const at::Tensor& probabilities, const at::Tensor& chosen_experts,
                  const at::Tensor& log_sums) const {
  const std::int64_t count = experts();
  const at::Tensor places = sequence.unsqueeze(1) * count + chosen_experts;
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
  return at::index_select(chosen * (scale / lengths.unsqueeze(1)), 0, sequence);
}

}  // namespace qft::model
