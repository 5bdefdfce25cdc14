// The run's steps, without reading tokens: which items each step takes, and how ranks and micro-batches share
// them. Pure functions of the items' lengths and the options.
#pragma once

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

/// Item numbers of a part of a pack, in the order in which they count; null: all items.
using ItemSubset = std::shared_ptr<const std::vector<std::int64_t>>;

/// Parts [0, num_items) into (training, validation), both in source order, by the seed. `validation` below 1
/// is a share of the items (rounded up), else their number; the items are those that LLaMA-Factory's val_size
/// holds out by the same seed, where no record was dropped. Throws ConfigError where one side would be empty.
std::pair<ItemSubset, ItemSubset> split_items(std::int64_t num_items, double validation, std::uint64_t seed);

/// Batch sizes count units: a unit is an item, or with packing a row.
struct LoaderOptions {
  std::int64_t micro_batch_size = 1;             // units
  std::int64_t gradient_accumulation_steps = 1;  // sets the default global batch, and epochs' fractions
  std::int64_t global_batch_size = 0;            // units; 0: micro * accumulation * ranks
  std::uint64_t seed = 42;
  bool shuffle = true;  // false: source order
  bool packing = false;
  std::int32_t row_tokens = 0;  // with packing
  double num_epochs = 3.0;
  std::int64_t max_steps = 0;  // > 0 overrides num_epochs
  bool drop_last = false;      // drop the last units that do not fill a micro-batch on all ranks
  // > 0: more and smaller micro-batches where one would exceed it (a unit that alone exceeds it stays alone).
  std::int64_t max_tokens_per_micro_batch = 0;
  // The micro-batches are the same on any number of ranks, each of which gets consecutive ones; else they are made to suit the
  // number of ranks.
  bool fixed_micro_batches = false;
  ItemSubset items;                 // null: the whole pack
  std::int64_t prefetch_steps = 2;  // steps read ahead
  bool share_prompts = false;       // the sequences of a pair share the rows of their prompt; changes no composition

  // With a curriculum each step takes its shares of the levels, each level in an order of its own that starts
  // anew when it is used up; all steps have a full global batch. With packing a row holds one level.
  std::optional<CurriculumTable> curriculum;
  std::uint64_t curriculum_seed = 42;
  std::vector<std::int32_t> item_levels;  // [items of the pack] index into the table's levels; -1: never taken
};

/// What the run file says of batches, order and length; no items and no curriculum.
LoaderOptions loader_options(const config::RunConfig& config);

/// The items of one step and who computes them.
struct StepPlan {
  std::int64_t step = 0;
  double epoch = 0;
  std::int64_t label_tokens = 0, tokens = 0, samples = 0;  // over all ranks
  std::int64_t max_micro_batches = 0;                      // of the rank that has most: the rounds of the step
  // [max_micro_batches * world]: the items of round k on rank r at k * world + r; may be empty.
  std::vector<std::vector<std::int64_t>> micro_batches;
  /// How many there are of ranks [0, rank).
  std::int64_t micro_batches_before(int rank, int world) const;
};

/// Deals units out to `bins` = rounds * world micro-batches of at most `capacity` units, the longest first to
/// the least loaded; a bin's units come out rising. Rounds are the fewest that hold all units, more where
/// `max_tokens` > 0 asks for it.
std::vector<std::vector<std::int32_t>> deal_units(std::span<const std::int64_t> unit_tokens, int world, std::int64_t capacity,
                                                  std::int64_t max_tokens);

/// Gives rank r of `world` the run [n r / world, n (r + 1) / world) of n micro-batches, as StepPlan has them.
/// They come in an order in which any run holds heavy and light ones, if `micro_batches` begin with the heavy.
std::vector<std::vector<std::int32_t>> deal_runs(std::vector<std::vector<std::int32_t>> micro_batches, int world);

/// The same micro-batches for other ranks: those of a round move on by a rank with each step, and every other round is dealt
/// backwards, so that no rank always gets the longest samples. A function of `step` alone.
std::vector<std::vector<std::int32_t>> take_turns(std::vector<std::vector<std::int32_t>> micro_batches, int world,
                                                  std::int64_t step);

class StepSchedule {
 public:
  /// tokens[i], labels[i]: those of item i of the pack; they must outlive the schedule. Throws ConfigError on
  /// options that make no step.
  StepSchedule(std::span<const std::int32_t> tokens, std::span<const std::int32_t> labels, const LoaderOptions& options,
               int world_size);

  /// As the HF Trainer counts: the last, short batch of an epoch is a step.
  std::int64_t steps_per_epoch() const { return steps_per_epoch_; }
  std::int64_t total_steps() const { return total_steps_; }
  std::int64_t global_batch_size() const { return global_batch_; }
  /// Items, or rows, that an epoch takes (drop_last leaves some out).
  std::int64_t units_per_epoch() const { return used_units_; }
  /// Items of a unit, at most.
  std::int64_t most_items_of_a_unit() const;
  int world_size() const { return world_size_; }
  const LoaderOptions& options() const { return options_; }
  /// The shares by step, if there is a curriculum.
  const CurriculumPlan* curriculum() const { return curriculum_ ? &*curriculum_ : nullptr; }
  /// The row plan, if packing without a curriculum.
  const RowPlan* rows() const { return rows_ ? &*rows_ : nullptr; }
  /// A hash of the chosen items, "all" for the whole pack.
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
  std::int64_t units_together_ = 0;  // of a round, as configured; the global batch, where rounds do not divide it
  std::int64_t units_ = 0, used_units_ = 0, global_batch_ = 0, steps_per_epoch_ = 0, total_steps_ = 0;
};

}  // namespace qft::loader
