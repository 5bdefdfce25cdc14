// Losses and metrics of rerankers: a score for each document of a query. As in ms-swift.
#pragma once

#include "qft/engine/objectives.h"
#include "qft/parallel/objective.h"

#include <cstdint>
#include <span>
#include <string_view>

namespace qft::totals {

/// Rerankers: the documents, and the groups that have a listwise loss, of the global batch.
inline constexpr std::string_view kDocuments = "documents", kGroups = "groups";

}  // namespace qft::totals

namespace qft::engine {

/// Returns the objective of stage reranker.
const ObjectiveRow& reranker_objective(const config::RunConfig& config);

struct RerankerOptions {
  bool listwise = false;            ///< reranker_loss
  double temperature = 1.0;         ///< listwise_temperature
  std::int64_t min_group_size = 2;  ///< listwise_min_group_size
};

/// A micro-batch has one sequence per document; columns::kDocumentLabels is 1 for relevant documents, else 0. A group begins at
/// each relevant document and has the other documents behind it. x is a document's score, z its label.
///   pointwise: mean over the documents of the global batch of -z log sigmoid(x) - (1 - z) log sigmoid(-x)
///   listwise: mean over the groups of at least min_group_size documents of -log softmax(x / temperature) of the first document;
///   0 if there is no such group
class RerankerLoss final : public parallel::Objective {
 public:
  RerankerLoss(const RerankerOptions& options, const parallel::BatchTotals& totals) : options_(options), totals_(totals) {}
  parallel::ObjectiveKind kind() const override { return parallel::ObjectiveKind::sequence_level; }
  double denominator() const override;
  /// acc: pointwise the share of documents with (score > 0) == label, listwise the share of groups whose first document scores
  /// highest. mrr: the mean of 1 / place of the relevant document, and ndcg, of 1 / log2(1 + place); documents with an equal
  /// score stand behind it. Metrics of groups are over groups of at least two documents. NaN if a score that they read is not
  /// finite.
  std::span<const std::string_view> metrics() const override;
  at::Tensor observe(const model::MicroInput& in, const parallel::Logprobs& scores, const at::Tensor& grad) const override;

 private:
  RerankerOptions options_;
  parallel::BatchTotals totals_;
};

}  // namespace qft::engine
