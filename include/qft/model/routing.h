// What routers of a model with experts did in a micro-batch, and the losses that keep them balanced.
#pragma once

#include "qft/model/config.h"
#include "qft/ops/attention.h"

#include <cstdint>

#include <ATen/core/Tensor.h>

namespace qft::model {

/// Sums over a micro-batch's tokens and the layers that have run, S sequences, L layers, E experts. Types are those of
/// statistics, fp64 for fp64 data, else fp32. A row that sequences share counts as a token of each.
struct Routing {
  at::Tensor sequence;     ///< int64 [tokens]: the sequence of each token
  at::Tensor lengths;      ///< [S]
  at::Tensor chosen;       ///< [S, E]: how often a token went to the expert
  at::Tensor probability;  ///< [S, E]
  at::Tensor load;         ///< [L, E]: `chosen` of each layer, whatever the sequence; zero for layers without experts
  at::Tensor entropy;      ///< [1]: of a token's probabilities, in nats
  at::Tensor square;       ///< [1]: of the logarithm of the sum of a token's exponentiated logits
  std::int64_t sparse_layers = 0;
  ops::SharedRows shared;

  bool observed() const { return chosen.defined(); }
  std::int64_t experts() const { return chosen.size(1); }

  /// Zeros, for these sequences; nothing for a model without experts.
  static Routing build(const ModelConfig& config, const ops::PackedSequences& sequences, at::ScalarType statistics,
                       c10::Device device);
  /// Adds what a layer's router did in a batch of T rows: probabilities [T, E], experts int32 [T, k], log_sums [T].
  void add(std::int64_t layer, const at::Tensor& probabilities, const at::Tensor& chosen_experts,
           const at::Tensor& log_sums) const;

  /// Sum over the sequences of length * balance loss: E * sum over the experts of the share of choices times the mean
  /// probability, over all layers (Switch Transformer, equation 4; transformers' load_balancing_loss_func, of each sequence by
  /// itself, so that it does not depend on what else is in a micro-batch). fp64 [1].
  at::Tensor balance_loss() const;
  /// d(balance_loss()) / d(probability) of each row in one layer: [T, E].
  at::Tensor balance_gradient() const;
  /// d(square) / d(log_sums) of each row: [T].
  at::Tensor square_gradient(const at::Tensor& log_sums) const;
};

/// Weights of the losses of routers in a step: coefficient / tokens of the global batch.
struct RoutingLoss {
  double balance = 0.0;  ///< of Routing::balance_loss()
  double z = 0.0;        ///< of Routing::square (ST-MoE's z-loss, summed over the layers)
  bool any() const { return balance != 0.0 || z != 0.0; }
};

}  // namespace qft::model
