// The objective of a model with experts: wraps another objective and adds the routers' losses and metrics.
#pragma once

#include "qft/parallel/objective.h"

#include <memory>
#include <string>
#include <vector>

namespace qft::parallel {

/// Coefficients of a run; 0 disables a loss.
struct RoutingCoefficients {
  double balance = 0.0, z = 0.0;
};

/// loss = inner loss + balance coefficient * mean over tokens of the sequences' balance loss + z coefficient * mean over tokens
/// of the squared logsumexp (model/routing.h). Metrics: router/aux_loss; router/entropy, per token and layer, in nats;
/// router/load_max and router/load_min, the token counts of the busiest and the idlest expert in any layer, divided by the count
/// that each would get if all got the same.
class RoutingObjective final : public Objective {
 public:
  RoutingObjective(std::unique_ptr<Objective> inner, const model::ModelConfig& config, const RoutingCoefficients& coefficients,
                   const BatchTotals& totals);
  ObjectiveKind kind() const override { return inner_->kind(); }
  double denominator() const override { return inner_->denominator(); }
  std::span<const std::string_view> metrics() const override { return names_; }
  void known_gradient(const model::MicroInput& in, const at::Tensor& grad) const override { inner_->known_gradient(in, grad); }
  std::int64_t row_values() const override { return inner_->row_values(); }
  at::Tensor read_rows(const model::MicroInput& in, const ops::HeadChunk& chunk, const at::Tensor& values,
                       const at::Tensor& grad) const override {
    return inner_->read_rows(in, chunk, values, grad);
  }
  bool reference_rows() const override { return inner_->reference_rows(); }
  at::Tensor observe(const model::MicroInput& in, const Logprobs& logprobs, const at::Tensor& grad) const override;
  model::RoutingLoss routing() const override { return weights_; }
  double summarise(std::map<std::string, double>& metrics) const override;

 private:
  std::unique_ptr<Objective> inner_;
  model::RoutingLoss weights_;
  std::int64_t layers_, sparse_layers_ = 0, experts_;
  double total_tokens_;
  std::vector<bool> sparse_;
  double even_load_;  ///< tokens per expert and layer, if all experts got the same
  std::vector<std::string> texts_;
  std::vector<std::string_view> names_;  ///< the inner objective's, aux_loss, entropy, and the load of each layer and expert
};

/// Returns a warning if a step's routing metrics show that routers send nearly all tokens to the same experts; otherwise an empty
/// text.
std::string describe_collapse(const std::map<std::string, double>& metrics, const model::ModelConfig& config);

}  // namespace qft::parallel
