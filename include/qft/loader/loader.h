// What each rank computes in each optimizer step: flat micro-batches without padding, read ahead on a thread.
// The order of samples depends on the seed and the epoch alone, never on the number of ranks.
#pragma once

#include "qft/loader/batch_bounds.h"
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
  // [L] rising indices into tokens of the label tokens. The token at p is predicted from hidden state p-1: none is the first of
  // its sequence.
  std::vector<std::int32_t> label_positions;
  std::vector<double> label_weights;       // [L] what each label counts, of a pack that has weights; else empty
  std::vector<std::int64_t> samples;       // [S] item * sequences per item + number in the item
  std::vector<std::int32_t> item_offsets;  // [I+1] of sequences: where each item's begin; first 0, last S
  // [S] first tokens of each that are those of the one before it and have rows already (share_prompts); empty: none are
  std::vector<std::int32_t> shared;
  std::vector<std::uint8_t> liked;  // [I] of a pack of stage kto: 1 where the answer is liked; else empty
  // [I] of a pack of stage seq_cls whose records have labels: their numbers (encode::class_values()); else empty
  std::vector<std::vector<double>> classes;

  /// Tokens that are computed: each but those that are shared.
  std::int64_t rows() const;
};

/// The sequences number `which` of all items, each as an item of its own.
MicroBatch sequences_of(const MicroBatch& batch, std::int32_t which);

/// What this rank computes in an optimizer step.
struct StepBatch {
  std::int64_t step = 0;                  // from 0
  double epoch = 0;                       // after this step, fractional, as the HF Trainer reports it
  std::vector<MicroBatch> micro_batches;  // their number may differ between ranks, and be 0
  // Over all ranks:
  std::int64_t global_label_tokens = 0;
  std::int64_t global_tokens = 0;
  std::int64_t global_samples = 0;     // items
  std::int64_t max_micro_batches = 0;  // of the rank that has most: every rank runs so many rounds, so that collectives match
  std::int64_t global_micro_batches = 0;
  std::int64_t first_micro_batch = 0;  // of this rank, where they are counted rank by rank
  bool weighted = false;               // the pack has weights of labels
};

/// The batches of a run, for one rank. Not collective: all ranks plan the same steps from the same lengths.
/// next(), seek() and resume() belong to one thread.
class Loader {
 public:
  /// Throws ConfigError on options that do not fit the pack. With share_prompts reads what pairs share; the first next() starts
  /// reading batches.
  Loader(std::shared_ptr<const pack::PackReader> pack, LoaderOptions options, int rank, int world_size);
  ~Loader();

  std::int64_t steps_per_epoch() const { return schedule_.steps_per_epoch(); }
  std::int64_t total_steps() const { return schedule_.total_steps(); }
  std::int64_t global_batch_size() const { return schedule_.global_batch_size(); }
  const StepSchedule& schedule() const { return schedule_; }
  /// Of the whole run and all ranks.
  BatchBounds bounds() const;
  /// The share of the tokens of an epoch that have no row of their own; 0: none, or not known.
  double shared_share() const;

  /// The batch of the next step; blocks until it is read. Throws Error naming pack and item where an item is
  /// damaged, or after the last step.
  StepBatch next();
  /// Makes `step` (0 .. total_steps) the next one, without reading the steps before.
  void seek(std::int64_t step);

  /// The next step and everything that fixes the order of samples, for the checkpoint.
  nlohmann::json position() const;
  /// Goes to a position() that this or an earlier run saved, on any number of ranks. Throws ConfigError with
  /// both values where the order would differ (other pack, seed, global batch, packing, split).
  void resume(const nlohmann::json& position);

 private:
  StepBatch read_step(std::int64_t step) const;
  nlohmann::json identity() const;

  std::shared_ptr<const pack::PackReader> pack_;
  StepSchedule schedule_;
  std::vector<std::int32_t> shared_;  ///< shared_prompts(), where the run shares them
  int rank_;
  std::size_t prefetch_steps_;
  std::int64_t next_step_ = 0;
  std::unique_ptr<Prefetcher<StepBatch>> prefetcher_;
};

/// One sequential pass over items for evaluation: micro-batch g of `micro_batch_size` items belongs to rank
/// g % world_size. Not collective.
class EvalLoader {
 public:
  /// `items`: null for all. `max_items` > 0 takes the first so many. `share_prompts`: as in LoaderOptions.
  EvalLoader(std::shared_ptr<const pack::PackReader> pack, ItemSubset items, std::int64_t micro_batch_size, int rank,
             int world_size, std::int64_t max_items = 0, bool share_prompts = false);
  ~EvalLoader();

  /// How many times every rank must call next() in a pass.
  std::int64_t max_micro_batches() const { return max_micro_batches_; }
  std::int64_t num_items() const { return num_items_; }
  /// Whether the pack has weights of labels.
  bool weighted() const { return pack_->has_weights(); }
  std::int64_t global_label_tokens() const { return label_tokens_; }
  std::int64_t global_tokens() const { return tokens_; }
  /// Of the largest micro-batch of any rank.
  std::int64_t most_tokens() const { return most_tokens_; }
  /// The next micro-batch of this rank: without tokens where the last round has none for it, nothing after
  /// max_micro_batches() calls.
  std::optional<MicroBatch> next();
  /// Starts the pass again.
  void rewind();

 private:
  std::int64_t item_at(std::int64_t index) const;
  MicroBatch read_round(std::int64_t round) const;

  std::shared_ptr<const pack::PackReader> pack_;
  ItemSubset items_;
  std::int64_t micro_batch_size_, num_items_, max_micro_batches_, label_tokens_ = 0, tokens_ = 0, most_tokens_ = 0;
  int rank_, world_size_;
  bool share_prompts_;
  std::unique_ptr<Prefetcher<MicroBatch>> prefetcher_;
};

}  // namespace qft::loader
