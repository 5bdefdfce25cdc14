// The run's steps, without reading tokens: which items each step takes, and how ranks and micro-batches divide them. Pure
// functions of the items' lengths and the options.
#pragma once

#include "qft/config/stages.h"
#include "qft/loader/curriculum.h"
#include "qft/loader/row_packing.h"

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace qft::config {
struct RunConfig;
}

namespace qft::loader {

/// Item numbers of a part of a pack, in their order; null: all items.
using ItemSubset = std::shared_ptr<const std::vector<std::int64_t>>;

/// Splits [0, num_items) into (training, validation), both in source order, by the seed. `validation` below 1 is a fraction of
/// the items (rounded up), otherwise their number. Holds out the same items as LLaMA-Factory's val_size with the same seed, if no
/// record was dropped. Throws ConfigError if one side would be empty.
std::pair<ItemSubset, ItemSubset> split_items(std::int64_t num_items, double validation, std::uint64_t seed);

/// Batch sizes count units: a unit is an item, or with packing a row.
struct LoaderOptions {
  std::int64_t micro_batch_size = 1;             // in units
  std::int64_t gradient_accumulation_steps = 1;  // sets the default global batch, and the fractions of epochs
  std::int64_t global_batch_size = 0;            // in units; 0: micro * accumulation * ranks
  std::uint64_t seed = 42;
  bool shuffle = true;  // false: source order
  bool packing = false;
  std::int32_t row_tokens = 0;  // with packing
  double num_epochs = 3.0;
  std::int64_t max_steps = 0;  // above 0: overrides num_epochs
  bool drop_last = false;      // drop the last units that do not fill a micro-batch on all ranks
  // Above 0: splits micro-batches that would exceed it. A single unit that exceeds it forms its own micro-batch.
  std::int64_t max_tokens_per_micro_batch = 0;
  // true: the micro-batches are the same on any number of ranks, and each rank gets consecutive ones. false: they are chosen to
  // suit the number of ranks.
  bool fixed_micro_batches = false;
  ItemSubset items;                 // null: the whole pack
  std::int64_t prefetch_steps = 2;  // steps read ahead
  // the sequences of a pair share the rows of their prompt; does not change the composition of batches
  bool share_prompts = false;
  // set if the items have varying numbers of sequences: which of them take part
  std::optional<config::ItemLimits> limits = {};

  // With a curriculum each step takes its shares of the levels. Each level has its own order, which restarts when it is used up;
  // all steps have a full global batch. With packing a row holds one level.
  std::optional<CurriculumTable> curriculum;
  std::uint64_t curriculum_seed = 42;
  std::vector<std::int32_t> item_levels;  // [items of the pack] index into the table's levels; -1: never taken

  /// Returns the units of a step on `ranks` ranks.
  std::int64_t units_of_step(int ranks) const {
    return global_batch_size > 0 ? global_batch_size : micro_batch_size * ranks * gradient_accumulation_steps;
  }
};

/// Returns the run file's settings for batches, order and length, without items and curriculum.
LoaderOptions loader_options(const config::RunConfig& config);

/// The items of one step, and the rank that computes each.
struct StepPlan {
  std::int64_t step = 0;
  double epoch = 0;
  std::int64_t label_tokens = 0, tokens = 0, samples = 0;  // over all ranks
  std::int64_t max_micro_batches = 0;                      // maximum over the ranks: the rounds of the step
  // [max_micro_batches * world]: the items of round k on rank r are at k * world + r; may be empty.
  std::vector<std::vector<std::int64_t>> micro_batches;
  /// Returns the number of micro-batches of ranks [0, rank).
  std::int64_t micro_batches_before(int rank, int world) const;
};

/// Distributes units over `bins` = rounds * world micro-batches of at most `capacity` units, the longest first, to the least
/// loaded bin. A bin's units are in ascending order. Uses the fewest rounds that hold all units, or more if `max_tokens` > 0
/// requires it.
std::vector<std::vector<std::int32_t>> distribute_units(std::span<const std::int64_t> unit_tokens, int world,
                                                        std::int64_t capacity, std::int64_t max_tokens);

/// Gives rank r of `world` the micro-batches [n r / world, n (r + 1) / world) of n, in StepPlan's layout. Orders them so that any
/// run of them mixes heavy and light ones, if `micro_batches` begins with the heavy ones.
std::vector<std::vector<std::int32_t>> distribute_runs(std::vector<std::vector<std::int32_t>> micro_batches, int world);

/// Moves the same micro-batches to other ranks: with each step, a round's micro-batches move on by one rank, and every other
/// round is reversed, so no rank always gets the longest samples. A function of `step` alone.
std::vector<std::vector<std::int32_t>> rotate_ranks(std::vector<std::vector<std::int32_t>> micro_batches, int world,
                                                    std::int64_t step);

class StepSchedule {
 public:
  /// tokens[i], labels[i]: counts of item i of the pack, or the most tokens of an ItemChoice; both must outlive the schedule.
  /// Throws ConfigError if the options make no step.
  StepSchedule(std::span<const std::int32_t> tokens, std::span<const std::int32_t> labels, const LoaderOptions& options,
               int world_size);

  /// Counts as the HF Trainer does: the last, short batch of an epoch is a step.
  std::int64_t steps_per_epoch() const { return steps_per_epoch_; }
  std::int64_t total_steps() const { return total_steps_; }
  std::int64_t global_batch_size() const { return global_batch_; }
  /// Returns the items, or rows, that an epoch takes (drop_last leaves some out).
  std::int64_t units_per_epoch() const { return used_units_; }
  /// Returns the maximum number of items in a unit.
  std::int64_t max_items_per_unit() const;
  int world_size() const { return world_size_; }
  const LoaderOptions& options() const { return options_; }
  /// Returns the shares by step, if there is a curriculum.
  const CurriculumPlan* curriculum() const { return curriculum_ ? &*curriculum_ : nullptr; }
  /// Returns the row plan, if packing without a curriculum.
  const RowPlan* rows() const { return rows_ ? &*rows_ : nullptr; }
  /// Returns a hash of the chosen items, "all" for the whole pack.
  std::string items_hash() const;

  StepPlan plan(std::int64_t step) const;

 private:
  // The items of one level, in units.
  struct Pool {
    std::vector<std::int64_t> items;
    std::optional<RowPlan> rows;
    std::int64_t units() const { return rows ? rows->rows() : static_cast<std::int64_t>(items.size()); }
  };
  struct Units;  // the units of a step
  void make_pools();
  void count_steps();
  Units units_of(std::int64_t step) const;
  void append_unit(std::uint64_t epoch, std::int64_t position, std::vector<std::int64_t>& items) const;
  void append_from(std::size_t level, std::int64_t draw, std::vector<std::int64_t>& items) const;
  double epoch_after(std::int64_t epoch, std::int64_t units_done) const;

  std::span<const std::int32_t> tokens_, labels_;
  LoaderOptions options_;
  int world_size_;
  std::optional<RowPlan> rows_;
  std::vector<Pool> pools_;
  std::optional<CurriculumPlan> curriculum_;
  std::int64_t units_together_ = 0;  // units of a round, as configured; the global batch if rounds do not divide it
  std::int64_t units_ = 0, used_units_ = 0, global_batch_ = 0, steps_per_epoch_ = 0, total_steps_ = 0;
};

}  // namespace qft::loader
