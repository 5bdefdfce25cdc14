// Losses of single samples that weight each label: a table.
#pragma once

#include "qft/engine/objectives.h"
#include "qft/parallel/objective.h"

#include <span>
#include <string_view>

namespace qft::engine {

/// The keys of the run file that the losses read.
struct TokenLossOptions {
  double eaft_alpha = 1.0, asft_alpha = 0.1;
};

/// A loss that weights labels. A row of the table.
struct TokenLoss {
  std::string_view name;
  /// Writes the weights of a chunk's labels to `weights` [n].
  void (*weigh)(const TokenLossOptions& options, const ops::HeadChunk& chunk, const at::Tensor& weights);
  bool config::FinetuningArgs::* key;  ///< the key that selects it
  bool reference = false;              ///< adds the KL distance to the reference
};

/// Returns cross-entropy, unless a key of the run selects a row.
const ObjectiveRow& token_objective(const config::RunConfig& config);

std::span<const TokenLoss> token_losses();
/// Returns the row with that name; throws Error if there is none.
const TokenLoss& token_loss(std::string_view name);

/// loss = sum over the labels of weight * -log p(label), divided by the label tokens of the global batch. A label's weight is a
/// function of its row of logits; no gradient flows through the weight. With a reference q the loss adds asft_alpha * KL(q || p)
/// of the label's row. If the data weights labels (columns::kLabelWeights), everything that a label adds is multiplied by that
/// weight, as ms-swift does with DFT. Metrics: token/nll, the mean of -log p; token/weight, the mean of the products of the
/// weights; token/kl.
class WeightedTokenLoss final : public parallel::Objective {
 public:
  WeightedTokenLoss(const TokenLoss& loss, const TokenLossOptions& options, const parallel::BatchTotals& totals)
      : loss_(loss), options_(options), denominator_(totals.label_tokens) {}
  parallel::ObjectiveKind kind() const override { return parallel::ObjectiveKind::row_local; }
  double denominator() const override { return denominator_; }
  std::span<const std::string_view> metrics() const override;
  std::int64_t row_values() const override { return loss_.reference ? 2 : 1; }
  bool reference_rows() const override { return loss_.reference; }
  at::Tensor read_rows(const model::MicroInput& in, const ops::HeadChunk& chunk, const at::Tensor& values,
                       const at::Tensor& grad) const override;
  at::Tensor observe(const model::MicroInput& in, const parallel::Logprobs& logprobs, const at::Tensor& grad) const override;

 private:
  const TokenLoss& loss_;
  TokenLossOptions options_;
  double denominator_;
};

}  // namespace qft::engine
