#include "qft/parallel/routing_objective.h"

#include <algorithm>
#include <cmath>

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/full.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>
#include <fmt/format.h>

namespace qft::parallel {
namespace {

constexpr const char *kAuxLoss = "router/aux_loss", *kEntropy = "router/entropy", *kLoadMax = "router/load_max",
                     *kLoadMin = "router/load_min";
constexpr std::string_view kLoad = "router/load of ";

}  // namespace

RoutingObjective::RoutingObjective(std::unique_ptr<Objective> inner, const model::ModelConfig& config,
                                   const RoutingCoefficients& coefficients, const BatchTotals& totals)
    : inner_(std::move(inner)),
      weights_{coefficients.balance / totals.tokens, coefficients.z / totals.tokens},
      layers_(config.num_layers),
      experts_(config.experts.count),
      total_tokens_(totals.tokens),
      sparse_(config.sparse),
      even_load_(totals.tokens * static_cast<double>(config.experts.per_token) / static_cast<double>(config.experts.count)) {
  texts_ = {kAuxLoss, kEntropy};
  for (int layer = 0; layer < config.num_layers; ++layer) {
    sparse_layers_ += config.is_sparse(layer) ? 1 : 0;
    for (std::int64_t e = 0; e < experts_; ++e) texts_.push_back(fmt::format("{}{} {}", kLoad, layer, e));
  }
  const auto own = inner_->metrics();
  names_.assign(own.begin(), own.end());
  names_.insert(names_.end(), texts_.begin(), texts_.end());
}

at::Tensor RoutingObjective::observe(const model::MicroInput& in, const Logprobs& logprobs, const at::Tensor& grad) const {
  const at::Tensor sums = inner_->observe(in, logprobs, grad);
  const model::Routing& r = in.routing;
  const auto wide = sums.options();
  if (!r.observed()) return at::cat({sums, at::zeros({2 * static_cast<std::int64_t>(texts_.size())}, wide)});
  const at::Tensor balance = r.balance_loss(), square = r.square.to(at::kDouble);
  sums.narrow(0, 0, 1).add_((balance * weights_.balance + square * weights_.z) * denominator());
  const auto tokens = static_cast<double>(in.sequences.num_tokens());
  const at::Tensor count = at::full({1}, tokens, wide),
                   decisions = at::full({1}, tokens * static_cast<double>(sparse_layers_), wide);
  // Each micro-batch contributes its part of (load / even load); the shares add up to 1 over the batch.
  const at::Tensor load = r.load.to(at::kDouble).view({-1}) / even_load_;
  const at::Tensor share = at::full({load.numel()}, tokens / total_tokens_, wide);
  return at::cat({sums, balance, count, r.entropy.to(at::kDouble), decisions, at::stack({load, share}, 1).view({-1})});
}

double RoutingObjective::summarise(std::map<std::string, double>& metrics) const {
  const double added = inner_->summarise(metrics);
  double most = 0, least = INFINITY;
  for (auto it = metrics.lower_bound(std::string(kLoad)); it != metrics.end() && it->first.starts_with(kLoad);) {
    if (sparse_[static_cast<std::size_t>(std::stoul(it->first.substr(kLoad.size())))]) {
      most = std::max(most, it->second);
      least = std::min(least, it->second);
    }
    it = metrics.erase(it);
  }
  if (least > most) return added;
  metrics[kLoadMax] = most;
  metrics[kLoadMin] = least;
  return added;
}

std::string describe_collapse(const std::map<std::string, double>& metrics, const model::ModelConfig& config) {
  const auto most = metrics.find(kLoadMax), entropy = metrics.find(kEntropy);
  if (most == metrics.end() || entropy == metrics.end()) return {};
  const auto count = static_cast<double>(config.experts.count), per_token = static_cast<double>(config.experts.per_token);
  const double limit = 0.9 * count / per_token;  // nine tenths of all tokens go to one expert
  if (count < 4 * per_token || (most->second < limit && entropy->second > 0.05 * std::log(count))) return {};
  return fmt::format(
      "a router collapses: an expert of a layer got {:.1f} times its even share of the tokens (the maximum is {:.1f} times), and "
      "the entropy per token is {:.3f} of at most {:.3f} nats; lower learning_rate, freeze the router, or set moe_aux_loss_coef",
      most->second, count / per_token, entropy->second, std::log(count));
}

}  // namespace qft::parallel
