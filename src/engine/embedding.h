// Losses and metrics of embedding models, as in ms-swift and sentence-transformers, over all vectors of a global batch.
#pragma once

#include "qft/engine/batch_vectors.h"
#include "qft/engine/objectives.h"

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace qft::engine {

/// Returns the objective of stage embedding.
const ObjectiveRow& embedding_objective(const config::RunConfig& config);

/// The keys infonce_* of the run file.
struct InfoNceOptions {
  double temperature = 0.1;
  bool use_batch = true;                            ///< negatives are the documents of all items, not only the item's own
  std::optional<double> fake_negative_margin = {};  ///< set: leaves out texts that are nearer than the positive by more than this
  bool mask_duplicates = true;                      ///< leaves out documents with the text of the anchor's positive
  bool include_qq = false, include_dd = false;      ///< further terms of the softmax: other anchors; positive with documents
};

struct EmbeddingOptions {
  std::string loss = "infonce";  ///< embedding_loss
  InfoNceOptions infonce = {};
  double margin = 0.5;                                       ///< contrastive_margin
  std::vector<std::pair<std::int64_t, double>> widths = {};  ///< mrl_dims: width and weight; empty: the full width
};

/// Reads the options of a run file.
EmbeddingOptions embedding_options(const config::FinetuningArgs& args);

/// Throws ConfigError if a width exceeds the length of the model's vectors.
void require_widths(const EmbeddingOptions& options, std::int64_t vector_length);

/// Returns the loss of a batch and its gradient. `vectors` [S, D], fp64: of all sequences; they need not have length 1. Item i
/// has the sequences [item_offsets[i], item_offsets[i + 1]): its anchor, its positive, its negatives. `labels` [I]: of the pair
/// losses; infonce ignores them. `texts` [S]: equal for equal texts, for mask_duplicates; empty: no mask. Let s(a, b) be the
/// cosine similarity.
///   infonce: mean over the items of -log softmax of s(anchor, positive) / temperature, over the documents
///   cosine_similarity: mean of (s - label)^2
///   contrastive: mean of half of (1 - s)^2 for label 1, half of max(0, margin - (1 - s))^2 for label 0
///   online_contrastive: sum of these squares, not halved, over the pairs with label 1 that are farther apart than the nearest
///   pair with label 0, and those with label 0 that are nearer than the farthest pair with label 1
/// With widths the sum over widths of weight * loss(the first numbers of each vector). The result has metrics if the loss is
/// infonce and reads the full width; they are those of embedding_metrics(). Throws Error for items without a positive,
/// pairs with more than two sequences, and widths above D (require_widths).
BatchLossResult embedding_loss(const EmbeddingOptions& options, const at::Tensor& vectors,
                               std::span<const std::int64_t> item_offsets, std::span<const double> labels,
                               std::span<const double> texts = {});

/// Returns metrics of a batch or a whole set, arguments as above. infonce: mean_pos, mean_neg (mean similarities of the anchors
/// with positives and negatives) and margin (mean lead of the positive before the nearest negative). Pair losses: Pearson's and
/// Spearman's correlations of the labels with four similarities, "pearson_cosine" to "spearman_dot_product". Leaves out metrics
/// that are not defined.
std::map<std::string, double> embedding_metrics(const EmbeddingOptions& options, const at::Tensor& vectors,
                                                std::span<const std::int64_t> item_offsets, std::span<const double> labels,
                                                std::span<const double> texts = {});

}  // namespace qft::engine
