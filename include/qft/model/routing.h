// Statistics of the routers in a micro-batch, and the losses that balance the experts.
#pragma once

#include "qft/model/config.h"
#include "qft/model/row_sharing.h"
#include "qft/ops/attention.h"

#include <cstdint>

#include <ATen/core/Tensor.h>

namespace qft::model {

/// Sums over a micro-batch's tokens and the layers that have run; S sequences, L layers, E experts. Statistics are fp32, or fp64
/// for fp64 data. A row that several sequences share counts as a token in each. If ranks share the rows out, each counts its own
/// until add_up().
struct Routing {
  at::Tensor sequence;     ///< int64 [tokens]: the sequence of each token whose row is here
  at::Tensor rows = {};    ///< int64 [tokens]: each token's row, counted from the first one here; undefined: all rows are here
  at::Tensor lengths;      ///< [S]
  at::Tensor chosen;       ///< [S, E]: how often a token chose the expert
  at::Tensor probability;  ///< [S, E]
  at::Tensor load;         ///< [L, E]: `chosen` per layer, over all sequences; zero for layers without experts
  at::Tensor entropy;      ///< [1]: entropy of a token's probabilities, in nats
  at::Tensor square;       ///< [1]: square of log(sum(exp(logits))) of a token
  std::int64_t sparse_layers = 0;
  std::int64_t rows_here = 0;  ///< rows of the micro-batch that this rank has; read only if `rows` is defined
  ops::SharedRows shared;

  bool observed() const { return chosen.defined(); }
  std::int64_t experts() const { return chosen.size(1); }

  /// Returns zeros for these sequences; an empty Routing for a model without experts.
  static Routing build(const ModelConfig& config, const ops::PackedSequences& sequences, at::ScalarType statistics,
                       c10::Device device, const RowSharing& tensor = {}, const RowSharing& context = {});
  /// Adds up the ranks' sums after the forward pass of all layers, before the losses or their gradients are computed. Collective
  /// over the ranks of both, as Transformer has them.
  void add_up(const RowSharing& tensor, const RowSharing& context = {}) const;
  /// Adds the router statistics of one layer for T rows: probabilities [T, E], experts int32 [T, k], log_sums [T].
  void add(std::int64_t layer, const at::Tensor& probabilities, const at::Tensor& chosen_experts,
           const at::Tensor& log_sums) const;

  /// Returns the sum over the sequences of length * balance loss. The balance loss is E * sum over the experts of (share of
  /// choices * mean probability), over all layers (Switch Transformer, equation 4; transformers' load_balancing_loss_func). It is
  /// computed per sequence, so that it does not depend on the rest of the micro-batch. fp64 [1].
  at::Tensor balance_loss() const;
  /// Returns d(balance_loss()) / d(probability) of each row in one layer: [T, E].
  at::Tensor balance_gradient() const;
  /// Returns d(square) / d(log_sums) of each row: [T].
  at::Tensor square_gradient(const at::Tensor& log_sums) const;
};

/// Weights of the router losses in a step: coefficient / tokens in the global batch.
struct RoutingLoss {
  double balance = 0.0;  ///< for Routing::balance_loss()
  double z = 0.0;        ///< for Routing::square (ST-MoE's z-loss, summed over the layers)
  bool any() const { return balance != 0.0 || z != 0.0; }
};

}  // namespace qft::model
