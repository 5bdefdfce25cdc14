// Losses over all vectors of the global batch, such as InfoNCE with in-batch negatives: a first forward pass gives every rank the
// whole batch's vectors, each rank computes the loss and its gradient once, and the pass that trains starts from this gradient
// (Gao et al., "Scaling Deep Contrastive Learning Batch Size under Memory Limited Setup", 2021). Ranks, micro-batches and
// accumulation do not change the loss.
#pragma once

#include "qft/engine/column_source.h"
#include "qft/engine/instance.h"
#include "qft/engine/objectives.h"

#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <ATen/core/Tensor.h>

namespace qft::columns {

/// Sequences: [S, D], d(loss) / d(vector) of each sequence. In training only.
inline constexpr std::string_view kVectorGradients = "vector_gradients";
/// Sequences: a hash of the tokens, of 53 bits, so equal texts have equal numbers. Made by BatchVectors, not by the loader.
inline constexpr std::string_view kTokenHashes = "token_hashes";
/// Items: fp64 [I, 1 + 2 M], the loss of the item's batch, and each metric with its count (0 if the batch lacks it).
inline constexpr std::string_view kBatchValues = "batch_values";

}  // namespace qft::columns

namespace qft::engine {

/// Returns columns::kTokenHashes of a micro-batch.
Column token_hashes(const loader::MicroBatch& batch);

struct BatchLossResult {
  double loss = 0.0;
  std::map<std::string, double> metrics = {};
  at::Tensor gradient = {};  ///< [N, D], d(loss) / d(vectors); not read in evaluations
};

/// `vectors`: fp64 [N, D] in host memory, those of all sequences of the batch, in the order of the batch. `item_offsets` [I + 1]:
/// the sequences of each item. `columns`: BatchVectorOptions::columns of the whole batch. A pure function: all ranks call it with
/// the same bits.
using BatchLoss =
    std::function<BatchLossResult(const at::Tensor& vectors, std::span<const std::int64_t> item_offsets, const Columns& columns)>;
/// Metrics of a whole evaluation set.
using BatchMetrics = std::function<std::map<std::string, double>(
    const at::Tensor& vectors, std::span<const std::int64_t> item_offsets, const Columns& columns)>;

struct BatchVectorOptions {
  BatchLoss loss;
  /// In evaluations, metrics of the whole set instead of the means of the batches' metrics; empty: the means.
  BatchMetrics evaluation_metrics = {};
  /// Columns of numbers that the functions read, with their spaces: sequence or item. Every micro-batch of the loader has them;
  /// columns::kTokenHashes is computed.
  std::map<std::string, IndexSpace, std::less<>> columns = {};
  std::vector<std::string_view> metrics = {};  ///< all names that the functions may return; they outlive the source
};

/// Makes the first pass, with the random numbers of the training step: the vectors have the dropout masks and noise that the pass
/// that trains has. An evaluation set is divided into batches of as many items as a step takes; its loss is their mean, weighted
/// by items.
class BatchVectors final : public ColumnSource {
 public:
  BatchVectors(const SourceContext& context, BatchVectorOptions options);

  bool observes() const override { return true; }
  void begin(std::int64_t micro_batches) override;
  void observe(const SourceBatch& batch, const Inputs& inputs) override;
  void finish(const parallel::Groups& groups, parallel::BatchTotals& totals, SourceState* state) override;
  void fill(const SourceBatch& batch, std::span<model::MicroInput> micros) override;

 private:
  /// This rank's part of a micro-batch.
  struct Part {
    at::Tensor vectors;                      ///< [S, D], host memory
    std::vector<std::int64_t> item_lengths;  ///< sequences per item
    Columns columns;
  };
  /// The whole batch, the same on every rank.
  struct Whole {
    std::vector<std::int64_t> first_item, first_sequence;  ///< [micro-batches + 1]
    std::vector<std::int64_t> item_offsets;                ///< [items + 1]
    at::Tensor vectors;                                    ///< fp64 [N, D]
    Columns columns;
  };
  Whole gather(comm::Communicator& data) const;
  void gather_columns(comm::Communicator& data, Whole& whole) const;
  /// Computes the loss of items [first, last).
  void compute(const Whole& whole, std::int64_t first, std::int64_t last);
  void note_metrics(const std::map<std::string, double>& metrics, std::int64_t first, std::int64_t last);

  Instance& instance_;
  BatchVectorOptions options_;
  bool training_;
  const config::RunConfig& config_;
  std::map<std::int64_t, Part> parts_;  ///< by number of the micro-batch
  std::int64_t micro_batches_ = 0;
  std::vector<std::int64_t> first_item_, first_sequence_;
  at::Tensor values_;     ///< fp64 [items, 1 + 2 M]
  at::Tensor gradients_;  ///< fp64 [N, D]
};

/// The objective of such a loss: reports the batch's values, and passes the gradient on. For heads that give vectors.
class BatchVectorObjective final : public parallel::Objective {
 public:
  /// `metrics`: BatchVectorOptions::metrics; must outlive the objective.
  BatchVectorObjective(const parallel::BatchTotals& totals, std::span<const std::string_view> metrics)
      : items_(totals.items), metrics_(metrics) {}
  parallel::ObjectiveKind kind() const override { return parallel::ObjectiveKind::row_local; }
  double denominator() const override { return items_; }
  std::span<const std::string_view> metrics() const override { return metrics_; }
  void known_gradient(const model::MicroInput& in, const at::Tensor& grad) const override;
  at::Tensor observe(const model::MicroInput& in, const parallel::Logprobs& values, const at::Tensor& grad) const override;

 private:
  double items_;
  std::span<const std::string_view> metrics_;
};

}  // namespace qft::engine
