#include "qft/loader/schedule.h"

#include "qft/config/run_config.h"
#include "qft/core/error.h"
#include "qft/core/hash.h"
#include "qft/core/numpy_random.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>
#include <queue>

#include "order.h"

namespace qft::loader {

namespace {

/// Streams of Order; row_packing.cpp has the streams of rows.
constexpr std::uint64_t kItemStream = 0, kLevelStream = 0x6c657665;

std::int64_t ceil_div(std::int64_t a, std::int64_t b) {
  return (a + b - 1) / b;
}

void check_options(const LoaderOptions& o, int world_size) {
  if (world_size < 1) fail("a loader for {} ranks", world_size);
  if (o.micro_batch_size < 1) fail_config("per_device_train_batch_size is {}: set it to 1 or more", o.micro_batch_size);
  if (o.gradient_accumulation_steps < 1)
    fail_config("gradient_accumulation_steps is {}: set it to 1 or more", o.gradient_accumulation_steps);
  if (o.global_batch_size < 0) fail_config("global_batch_size is {}: set it to 1 or more", o.global_batch_size);
  if (o.max_tokens_per_micro_batch < 0)
    fail_config("max_tokens_per_micro_batch is {}: set it to 1 or more", o.max_tokens_per_micro_batch);
  if (o.max_steps <= 0 && !(o.num_epochs > 0 && std::isfinite(o.num_epochs)))
    fail_config("num_train_epochs is {} and max_steps is {}: one must be above 0", o.num_epochs, o.max_steps);
}

std::vector<std::int32_t> pick(std::span<const std::int32_t> values, const std::vector<std::int64_t>& items) {
  std::vector<std::int32_t> picked;
  picked.reserve(items.size());
  for (const std::int64_t item : items) picked.push_back(values[static_cast<std::size_t>(item)]);
  return picked;
}

struct Bin {
  std::int64_t tokens = 0;
  std::int32_t index = 0;
  friend bool operator>(const Bin& a, const Bin& b) { return a.tokens != b.tokens ? a.tokens > b.tokens : a.index > b.index; }
};

}  // namespace

LoaderOptions loader_options(const config::RunConfig& config) {
  const auto& t = config.training;
  LoaderOptions options;
  options.micro_batch_size = t.per_device_train_batch_size;
  options.max_tokens_per_micro_batch = t.max_tokens_per_micro_batch;
  options.fixed_micro_batches = t.deterministic;
  options.gradient_accumulation_steps = t.gradient_accumulation_steps;
  options.global_batch_size = t.global_batch_size.value_or(0);
  options.seed = static_cast<std::uint64_t>(t.data_seed.value_or(t.seed));
  options.shuffle = !config.finetuning.disable_shuffling;
  // Packing joins documents of stage pt into full rows; here only samples are laid out.
  options.packing = config.data.packing.value_or(false) && !config.stage().has_documents();
  options.row_tokens = static_cast<std::int32_t>(config.data.cutoff_len);
  options.drop_last = t.dataloader_drop_last;
  options.num_epochs = t.num_train_epochs;
  options.max_steps = std::max<std::int64_t>(0, t.max_steps);
  options.share_prompts = config.unshared_prompts_reason().empty();
  if (config.stage().sequences == 0) options.limits = config.stage().limits(config);
  return options;
}

std::pair<ItemSubset, ItemSubset> split_items(std::int64_t num_items, double validation, std::uint64_t seed) {
  if (!(validation > 0) || !std::isfinite(validation)) fail_config("val_size is {}: set it above 0", validation);
  const auto held_out =
      static_cast<std::int64_t>(validation < 1 ? std::ceil(validation * static_cast<double>(num_items)) : validation);
  if (held_out >= num_items)
    fail_config("val_size {} takes {} of {} items and leaves none to train on: lower it", validation, held_out, num_items);
  const std::vector<std::int64_t> order = numpy::Generator(seed).permutation(num_items);
  std::vector<bool> validates(static_cast<std::size_t>(num_items));
  for (std::int64_t i = 0; i < held_out; ++i) validates[static_cast<std::size_t>(order[static_cast<std::size_t>(i)])] = true;
  auto train = std::make_shared<std::vector<std::int64_t>>(), valid = std::make_shared<std::vector<std::int64_t>>();
  train->reserve(static_cast<std::size_t>(num_items - held_out));
  valid->reserve(static_cast<std::size_t>(held_out));
  for (std::int64_t i = 0; i < num_items; ++i) (validates[static_cast<std::size_t>(i)] ? valid : train)->push_back(i);
  return {std::move(train), std::move(valid)};
}

std::vector<std::vector<std::int32_t>> distribute_units(std::span<const std::int64_t> unit_tokens, int world,
                                                        std::int64_t capacity, std::int64_t max_tokens) {
  const auto count = static_cast<std::int64_t>(unit_tokens.size());
  std::vector<std::int32_t> longest_first(unit_tokens.size());
  std::iota(longest_first.begin(), longest_first.end(), 0);
  std::stable_sort(longest_first.begin(), longest_first.end(), [&](std::int32_t a, std::int32_t b) {
    return unit_tokens[static_cast<std::size_t>(a)] > unit_tokens[static_cast<std::size_t>(b)];
  });
  std::int64_t max_micro_batches = ceil_div(count, capacity * world);
  if (max_tokens > 0) {
    std::int64_t tokens = 0;
    for (const std::int64_t t : unit_tokens) tokens += std::min(t, max_tokens);
    max_micro_batches = std::max(max_micro_batches, ceil_div(tokens, max_tokens * world));
  }
  for (;; ++max_micro_batches) {
    std::vector<std::vector<std::int32_t>> bins(static_cast<std::size_t>(max_micro_batches * world));
    std::priority_queue<Bin, std::vector<Bin>, std::greater<>> open;
    for (std::size_t i = 0; i < bins.size(); ++i) open.push({0, static_cast<std::int32_t>(i)});
    bool fits = true;
    for (const std::int32_t unit : longest_first) {
      Bin bin = open.top();
      open.pop();
      auto& units = bins[static_cast<std::size_t>(bin.index)];
      bin.tokens += unit_tokens[static_cast<std::size_t>(unit)];
      fits &= units.empty() || max_tokens <= 0 || bin.tokens <= max_tokens;
      units.push_back(unit);
      if (static_cast<std::int64_t>(units.size()) < capacity) open.push(bin);
    }
    if (!fits) continue;  // with as many rounds as units, each unit is alone and fits
    for (auto& units : bins) std::sort(units.begin(), units.end());
    return bins;
  }
}

std::vector<std::vector<std::int32_t>> distribute_runs(std::vector<std::vector<std::int32_t>> micro_batches, int world) {
  const std::size_t n = micro_batches.size(), ranks = static_cast<std::size_t>(world),
                    max_micro_batches = (n + ranks - 1) / ranks;
  std::vector<std::vector<std::int32_t>> ordered;
  const int bits = n > 1 ? std::bit_width(n - 1) : 0;  // the indices with reversed bits: 0 4 2 6 1 5 3 7
  for (std::size_t i = 0; i < std::size_t{1} << bits; ++i) {
    std::size_t reversed = 0;
    for (int b = 0; b < bits; ++b) reversed |= (i >> b & 1) << (bits - 1 - b);
    if (reversed < n) ordered.push_back(std::move(micro_batches[reversed]));
  }
  std::vector<std::vector<std::int32_t>> dealt(max_micro_batches * ranks);
  for (std::size_t r = 0; r < ranks; ++r) {
    const std::size_t first = n * r / ranks, last = n * (r + 1) / ranks;
    for (std::size_t i = first; i < last; ++i) dealt[(i - first) * ranks + r] = std::move(ordered[i]);
  }
  return dealt;
}

std::vector<std::vector<std::int32_t>> rotate_ranks(std::vector<std::vector<std::int32_t>> micro_batches, int world,
                                                    std::int64_t step) {
  const std::size_t ranks = static_cast<std::size_t>(world), turn = static_cast<std::size_t>(step) % ranks;
  std::vector<std::vector<std::int32_t>> dealt(micro_batches.size());
  for (std::size_t b = 0; b < dealt.size(); ++b) {
    const std::size_t round = b / ranks, place = round % 2 == 0 ? b % ranks : ranks - 1 - b % ranks;
    dealt[round * ranks + (place + turn) % ranks] = std::move(micro_batches[b]);
  }
  return dealt;
}

std::int64_t StepPlan::micro_batches_before(int rank, int world) const {
  std::int64_t count = 0;
  for (std::size_t b = 0; b < micro_batches.size(); ++b)
    count += static_cast<int>(b % static_cast<std::size_t>(world)) < rank && !micro_batches[b].empty();
  return count;
}

StepSchedule::StepSchedule(std::span<const std::int32_t> tokens, std::span<const std::int32_t> labels,
                           const LoaderOptions& options, int world_size)
    : tokens_(tokens), labels_(labels), options_(options), world_size_(world_size) {
  check_options(options, world_size);
  QFT_ASSERT(tokens.size() == labels.size(), "{} and {} items", tokens.size(), labels.size());
  if (options.items)
    for (const std::int64_t item : *options.items)
      QFT_ASSERT(item >= 0 && item < static_cast<std::int64_t>(tokens.size()), "item {} of {}", item, tokens.size());
  if (options.curriculum) {
    make_pools();
  } else if (options.packing && options.items) {
    rows_.emplace(pick(tokens, *options.items), options.row_tokens, options.seed, options.shuffle);
  } else if (options.packing) {
    rows_.emplace(tokens, options.row_tokens, options.seed, options.shuffle);
  }
  units_ = rows_           ? rows_->rows()
           : options.items ? static_cast<std::int64_t>(options.items->size())
                           : static_cast<std::int64_t>(tokens.size());
  if (options.curriculum) {
    units_ = 0;
    for (const Pool& pool : pools_) units_ += pool.units();
  }
  count_steps();
  if (!options.curriculum) return;
  std::vector<std::int64_t> sizes;
  for (const Pool& pool : pools_) sizes.push_back(pool.units());
  curriculum_.emplace(*options.curriculum, std::move(sizes), total_steps_, global_batch_);
}

void StepSchedule::make_pools() {
  QFT_ASSERT(options_.item_levels.size() == tokens_.size(), "{} levels for {} items", options_.item_levels.size(),
             tokens_.size());
  pools_.resize(options_.curriculum->levels.size());
  const auto add = [&](std::int64_t item) {
    const std::int32_t level = options_.item_levels[static_cast<std::size_t>(item)];
    if (level >= 0) pools_.at(static_cast<std::size_t>(level)).items.push_back(item);
  };
  if (options_.items)
    for (const std::int64_t item : *options_.items) add(item);
  else
    for (std::size_t i = 0; i < tokens_.size(); ++i) add(static_cast<std::int64_t>(i));
  if (!options_.packing) return;
  for (Pool& pool : pools_)
    if (!pool.items.empty())
      pool.rows.emplace(pick(tokens_, pool.items), options_.row_tokens, options_.curriculum_seed, options_.shuffle);
}

void StepSchedule::count_steps() {
  const LoaderOptions& options = options_;
  global_batch_ = options.units_of_step(world_size_);
  units_together_ = global_batch_ % options.gradient_accumulation_steps == 0 ? global_batch_ / options.gradient_accumulation_steps
                                                                             : global_batch_;
  used_units_ = options.drop_last ? units_ - units_ % units_together_ : units_;
  if (used_units_ == 0)
    fail_config("there are no training samples for a step: {} {} with dataloader_drop_last {} and a global batch of {}", units_,
                options.packing ? "rows" : "items", options.drop_last, global_batch_);
  steps_per_epoch_ = ceil_div(used_units_, global_batch_);
  const double steps = options.max_steps > 0 ? static_cast<double>(options.max_steps)
                                             : std::ceil(options.num_epochs * static_cast<double>(steps_per_epoch_));
  if (steps > static_cast<double>(config::kMaxSteps))
    fail_config("num_train_epochs {} of {} steps each are {} steps: a run has {} at most; lower num_train_epochs",
                options.num_epochs, steps_per_epoch_, steps, config::kMaxSteps);
  total_steps_ = static_cast<std::int64_t>(steps);
}

std::int64_t StepSchedule::max_items_per_unit() const {
  std::int64_t most = rows_ ? rows_->max_items_per_row() : 1;
  for (const Pool& pool : pools_)
    if (pool.rows) most = std::max(most, pool.rows->max_items_per_row());
  return most;
}

std::string StepSchedule::items_hash() const {
  if (!options_.items) return "all";
  Hasher hasher;
  hasher.update(options_.items->data(), options_.items->size() * sizeof(std::int64_t));
  return hasher.hex();
}

void StepSchedule::append_unit(std::uint64_t epoch, std::int64_t position, std::vector<std::int64_t>& items) const {
  const std::size_t first = items.size();
  if (rows_) {
    rows_->append_row(epoch, position, items);
  } else {
    items.push_back(options_.shuffle ? Order(units_, options_.seed, epoch, kItemStream)(position) : position);
  }
  if (!options_.items) return;
  for (std::size_t i = first; i < items.size(); ++i) items[i] = (*options_.items)[static_cast<std::size_t>(items[i])];
}

/// Like the HF Trainer: data-loader batches done in this epoch, divided by all batches in it.
double StepSchedule::epoch_after(std::int64_t epoch, std::int64_t units_done) const {
  return static_cast<double>(epoch) +
         static_cast<double>(ceil_div(units_done, units_together_)) / static_cast<double>(ceil_div(used_units_, units_together_));
}

void StepSchedule::append_from(std::size_t level, std::int64_t draw, std::vector<std::int64_t>& items) const {
  const Pool& pool = pools_[level];
  const auto pass = static_cast<std::uint64_t>(draw / pool.units());
  const std::int64_t position = draw % pool.units();
  const std::size_t first = items.size();
  if (pool.rows)
    pool.rows->append_row(pass, position, items);
  else if (options_.shuffle)
    items.push_back(Order(pool.units(), options_.curriculum_seed, pass, kLevelStream + level)(position));
  else
    items.push_back(position);
  for (std::size_t i = first; i < items.size(); ++i) items[i] = pool.items[static_cast<std::size_t>(items[i])];
}

struct StepSchedule::Units {
  std::vector<std::int64_t> items;
  std::vector<std::size_t> begin{0};  // [units + 1] into items
  void close() { begin.push_back(items.size()); }
};

StepSchedule::Units StepSchedule::units_of(std::int64_t step) const {
  Units units;
  if (curriculum_) {
    for (std::size_t level = 0; level < pools_.size(); ++level)
      for (std::int64_t draw = curriculum_->taken_before(step, level); draw < curriculum_->taken_before(step + 1, level);
           ++draw, units.close())
        append_from(level, draw, units.items);
    return units;
  }
  const std::int64_t epoch = step / steps_per_epoch_;
  const std::int64_t begin = step % steps_per_epoch_ * global_batch_;
  const std::int64_t end = std::min(begin + global_batch_, used_units_);
  for (std::int64_t position = begin; position < end; ++position, units.close())
    append_unit(static_cast<std::uint64_t>(epoch), position, units.items);
  return units;
}

StepPlan StepSchedule::plan(std::int64_t step) const {
  QFT_ASSERT(step >= 0 && (!curriculum_ || step < total_steps_), "step {} of {}", step, total_steps_);
  const std::int64_t units_done = std::min((step % steps_per_epoch_ + 1) * global_batch_, used_units_);
  StepPlan plan;
  plan.step = step;
  plan.epoch = epoch_after(step / steps_per_epoch_, units_done);

  const Units units = units_of(step);
  const std::vector<std::int64_t>& items = units.items;
  const std::vector<std::size_t>& unit_begin = units.begin;
  std::vector<std::int64_t> unit_tokens;
  for (std::size_t u = 0; u + 1 < unit_begin.size(); ++u) {
    std::int64_t tokens = 0;
    for (std::size_t i = unit_begin[u]; i < unit_begin[u + 1]; ++i) {
      tokens += tokens_[static_cast<std::size_t>(items[i])];
      plan.label_tokens += labels_[static_cast<std::size_t>(items[i])];
    }
    unit_tokens.push_back(tokens);
    plan.tokens += tokens;
  }
  plan.samples = static_cast<std::int64_t>(items.size());

  auto bins = distribute_units(unit_tokens, options_.fixed_micro_batches ? 1 : world_size_, options_.micro_batch_size,
                               options_.max_tokens_per_micro_batch);
  bins = options_.fixed_micro_batches ? distribute_runs(std::move(bins), world_size_)
                                      : rotate_ranks(std::move(bins), world_size_, step);
  plan.max_micro_batches = static_cast<std::int64_t>(bins.size()) / world_size_;
  plan.micro_batches.resize(bins.size());
  for (std::size_t b = 0; b < bins.size(); ++b)
    for (const std::int32_t unit : bins[b])
      plan.micro_batches[b].insert(plan.micro_batches[b].end(), items.begin() + static_cast<std::ptrdiff_t>(unit_begin[unit]),
                                   items.begin() + static_cast<std::ptrdiff_t>(unit_begin[unit + 1]));
  return plan;
}

}  // namespace qft::loader
