// The work of each rank in each optimizer step: flat micro-batches without padding, read ahead on a thread. The order of samples
// depends on the seed and the epoch alone, never on the number of ranks. Ranks are data ranks here: ranks that share a data
// rank's sequences or matrices (parallel/groups.h) read the same batches.
#pragma once

#include "qft/core/columns.h"
#include "qft/loader/batch_bounds.h"
#include "qft/loader/item_choice.h"
#include "qft/loader/prefetch.h"
#include "qft/loader/schedule.h"
#include "qft/pack/reader.h"

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include <nlohmann/json.hpp>

namespace qft::loader {

/// Sequences laid end to end. Owns its memory.
struct MicroBatch {
  std::vector<std::int32_t> tokens;      // [T]
  std::vector<std::int32_t> cu_seqlens;  // [S+1]: first 0, last T
  // [L] ascending indices into tokens of the label tokens. Hidden state p-1 predicts the token at p, so the first token of a
  // sequence is never a label.
  std::vector<std::int32_t> label_positions;
  std::vector<std::int64_t> samples;       // [S] number of the sequence in the pack; an ItemChoice may repeat sequences
  std::vector<std::int64_t> items;         // [I] number of the item in the pack
  std::vector<std::int32_t> item_offsets;  // [I+1] index of each item's first sequence; first 0, last S
  // [S] first tokens of each that equal the previous sequence's and use its rows (share_prompts); empty: no shared rows
  std::vector<std::int32_t> shared;
  // Label weights, if the pack has weights, the columns of the items' tags (encode/item_columns.h) in which every item has an
  // entry, and columns::kDocumentLabels of rankings.
  Columns columns;

  /// Returns the number of computed tokens: all tokens except the shared ones.
  std::int64_t rows() const;
};

/// Returns sequence `index` of every item, with its part of the columns; each becomes an item.
MicroBatch select_sequence(const MicroBatch& batch, std::int32_t index);

/// The work of this rank in one optimizer step.
struct StepBatch {
  std::int64_t step = 0;                  // from 0
  double epoch = 0;                       // after this step, fractional, as the HF Trainer reports it
  std::vector<MicroBatch> micro_batches;  // may differ in number between ranks, and be empty
  // Over all ranks:
  std::int64_t global_label_tokens = 0;
  std::int64_t global_tokens = 0;
  std::int64_t global_samples = 0;     // items
  std::int64_t max_micro_batches = 0;  // maximum over the ranks: every rank runs this many rounds, so that collectives match
  std::int64_t global_micro_batches = 0;
  std::int64_t first_micro_batch = 0;  // index of this rank's first micro-batch, counted rank by rank
  bool weighted = false;               // the pack has label weights
};

/// The batches of a run, for one rank. Not collective: all ranks plan the same steps from the same lengths. Call next(), seek()
/// and resume() from one thread.
class Loader {
 public:
  /// Throws ConfigError if the options do not fit the pack. With share_prompts it reads how many tokens pairs share. The first
  /// next() starts reading batches.
  Loader(std::shared_ptr<const pack::PackReader> pack, LoaderOptions options, int rank, int world_size);
  ~Loader();

  std::int64_t steps_per_epoch() const { return schedule_.steps_per_epoch(); }
  std::int64_t total_steps() const { return schedule_.total_steps(); }
  std::int64_t global_batch_size() const { return schedule_.global_batch_size(); }
  const StepSchedule& schedule() const { return schedule_; }
  /// Returns the bounds of the whole run on all ranks.
  BatchBounds bounds() const;
  /// Returns the fraction of an epoch's tokens that use shared rows; 0: none, or unknown.
  double shared_token_fraction() const;

  /// Returns the batch of the next step; blocks until it is read. Throws Error with pack and item if an item is damaged, and
  /// after the last step.
  StepBatch next();
  /// Makes `step` (0 .. total_steps) the next one, without reading the steps before.
  void seek(std::int64_t step);

  /// Returns the next step and everything that determines the order of samples, for the checkpoint.
  nlohmann::json position() const;
  /// Continues at a position() that this or an earlier run saved, on any number of ranks. Throws ConfigError with both values if
  /// the order would differ (other pack, seed, global batch, packing, split).
  void resume(const nlohmann::json& position);

 private:
  StepBatch read_step(std::int64_t step) const;
  nlohmann::json identity() const;

  std::span<const std::int32_t> item_tokens() const { return choice_ ? choice_->most_tokens() : pack_->item_tokens(); }

  std::shared_ptr<const pack::PackReader> pack_;
  std::shared_ptr<const ItemChoice> choice_;  ///< null: all sequences take part
  StepSchedule schedule_;
  std::vector<std::int32_t> shared_;  ///< shared_prompts(), if the run shares prompts
  int rank_;
  std::size_t prefetch_steps_;
  std::int64_t next_step_ = 0;
  std::unique_ptr<Prefetcher<StepBatch>> prefetcher_;
};

/// One sequential pass over items for evaluation: micro-batch g of `micro_batch_size` items belongs to rank g % world_size. Not
/// collective.
class EvalLoader {
 public:
  /// `items`: null for all. `max_items`: if above 0, takes only the first ones. `share_prompts`: as in LoaderOptions. `choice`:
  /// the sequences that take part, as in epoch 0; null: all.
  EvalLoader(std::shared_ptr<const pack::PackReader> pack, ItemSubset items, std::int64_t micro_batch_size, int rank,
             int world_size, std::int64_t max_items = 0, bool share_prompts = false,
             std::shared_ptr<const ItemChoice> choice = nullptr);
  ~EvalLoader();

  /// Returns how many times every rank must call next() in a pass.
  std::int64_t max_micro_batches() const { return max_micro_batches_; }
  std::int64_t num_items() const { return num_items_; }
  /// True if the pack has label weights.
  bool weighted() const { return pack_->has_weights(); }
  std::int64_t global_label_tokens() const { return label_tokens_; }
  std::int64_t global_tokens() const { return tokens_; }
  /// Returns the tokens of the largest micro-batch on any rank.
  std::int64_t max_micro_batch_tokens() const { return max_micro_batch_tokens_; }
  /// Returns this rank's next micro-batch: without tokens if the last round has none for it, nothing after max_micro_batches()
  /// calls.
  std::optional<MicroBatch> next();
  /// Restarts the pass.
  void rewind();

 private:
  std::int64_t item_at(std::int64_t index) const;
  MicroBatch read_round(std::int64_t round) const;

  std::shared_ptr<const pack::PackReader> pack_;
  std::shared_ptr<const ItemChoice> choice_;
  ItemSubset items_;
  std::int64_t micro_batch_size_, num_items_, max_micro_batches_, label_tokens_ = 0, tokens_ = 0, max_micro_batch_tokens_ = 0;
  int rank_, world_size_;
  bool share_prompts_;
  std::unique_ptr<Prefetcher<MicroBatch>> prefetcher_;
};

}  // namespace qft::loader
