#include "qft/loader/loader.h"

#include "qft/core/error.h"
#include "qft/core/log.h"
#include "qft/core/trace.h"
#include "qft/encode/item_columns.h"
#include "qft/loader/shared_prompts.h"
#include "qft/pack/inputs.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <numeric>
#include <utility>

namespace qft::loader {

using nlohmann::json;

namespace {

Column& column_of(MicroBatch& batch, std::string_view name, IndexSpace space) {
  return batch.columns.try_emplace(std::string(name), Column{space}).first->second;
}

/// Appends the item's sequences with these indices.
void append_item(MicroBatch& batch, const pack::FlatItem& item, std::span<const std::int32_t> sequences) {
  for (const std::int32_t sequence : sequences) {
    const auto s = static_cast<std::size_t>(sequence);
    const std::int64_t begin = s == 0 ? 0 : item.sequence_ends[s - 1], first_span = s == 0 ? 0 : item.span_ends[s - 1];
    const auto base = static_cast<std::int32_t>(batch.tokens.size());
    batch.tokens.insert(batch.tokens.end(), item.ids.begin() + begin, item.ids.begin() + item.sequence_ends[s]);
    for (std::int64_t span = first_span; span < item.span_ends[s]; ++span) {
      const encode::Span& labels = item.spans[static_cast<std::size_t>(span)];
      for (std::int32_t p = std::max(labels.begin, 1); p < labels.end; ++p) batch.label_positions.push_back(base + p);
      if (!item.span_weights.empty() && !batch.label_positions.empty())
        column_of(batch, columns::kLabelWeights, IndexSpace::label)
            .values.resize(batch.label_positions.size(), static_cast<double>(item.span_weights[static_cast<std::size_t>(span)]));
    }
    batch.cu_seqlens.push_back(static_cast<std::int32_t>(batch.tokens.size()));
    batch.samples.push_back(item.first_sequence + sequence);
  }
  batch.item_offsets.push_back(static_cast<std::int32_t>(batch.samples.size()));
}

std::vector<std::int32_t> all_sequences(const pack::FlatItem& item) {
  std::vector<std::int32_t> all(item.sequence_ends.size());
  std::iota(all.begin(), all.end(), 0);
  return all;
}

/// Throws Error if the item differs from the length table, from which the batch was planned.
void require_length(const pack::PackReader& pack, std::int64_t item, const pack::FlatItem& flat) {
  std::int64_t labels = 0;
  for (const encode::Span& span : flat.spans) labels += span.end - std::max(span.begin, 1);
  const auto i = static_cast<std::size_t>(item);
  require(std::ssize(flat.ids) == pack.item_tokens()[i] && labels == pack.item_labels()[i],
          "'{}', item {}: {} tokens and {} labels, but its length table says {} and {}: the file is damaged, copy or pack "
          "it again",
          pack.path().string(), item, flat.ids.size(), labels, pack.item_tokens()[i], pack.item_labels()[i]);
}

/// Reads items into one micro-batch, and compares them with the length table. `choice`: null for all sequences.
MicroBatch read_micro_batch(const pack::PackReader& pack, std::span<const std::int64_t> items, bool share_prompts,
                            const ItemChoice* choice, std::uint64_t epoch) {
  MicroBatch batch;
  const config::Stage& stage = pack.attributes().stage_row();
  const auto item_columns = encode::item_columns(stage.sample);
  share_prompts = share_prompts && stage.has_pairs();
  std::int64_t tokens = 0, labels = 0;
  for (const std::int64_t item : items) {
    tokens += choice ? choice->tokens(item, epoch) : pack.item_tokens()[static_cast<std::size_t>(item)];
    labels += pack.item_labels()[static_cast<std::size_t>(item)];
  }
  require(tokens <= std::numeric_limits<std::int32_t>::max(), "a micro-batch of {} tokens: lower the batch size", tokens);
  batch.tokens.reserve(static_cast<std::size_t>(tokens));
  batch.label_positions.reserve(static_cast<std::size_t>(labels));
  batch.cu_seqlens.push_back(0);
  batch.item_offsets.push_back(0);
  batch.items.assign(items.begin(), items.end());
  pack::FlatItem flat;
  for (const std::int64_t item : items) {
    pack.read(item, flat);
    require_length(pack, item, flat);
    const std::vector<std::int32_t> sequences = choice ? choice->sequences(item, epoch) : all_sequences(flat);
    append_item(batch, flat, sequences);
    if (share_prompts) batch.shared.insert(batch.shared.end(), {0, shared_prompt(flat)});
    for (const encode::ItemColumn& column : item_columns)
      column.append(pack.origin(item).tags, column_of(batch, column.name, IndexSpace::item));
    if (choice && choice->ranks())
      for (const std::int32_t sequence : sequences)
        column_of(batch, columns::kDocumentLabels, IndexSpace::sequence)
            .values.push_back(choice->is_positive(item, sequence) ? 1.0 : 0.0);
  }
  // Unlabelled items can be scored, but nothing is compared with their labels.
  std::erase_if(batch.columns, [&](const auto& column) {
    return column.second.space == IndexSpace::item && column.second.size() != items.size();
  });
  return batch;
}

void check_rank(int rank, int world_size) {
  QFT_ASSERT(rank >= 0 && rank < world_size, "rank {} of {}", rank, world_size);
}

}  // namespace

std::int64_t MicroBatch::rows() const {
  return std::accumulate(shared.begin(), shared.end(), static_cast<std::int64_t>(tokens.size()), std::minus<>());
}

MicroBatch select_sequence(const MicroBatch& batch, std::int32_t index) {
  MicroBatch part;
  part.cu_seqlens = part.item_offsets = {0};
  std::map<IndexSpace, std::vector<std::size_t>> taken;  // indices in the whole micro-batch
  for (std::size_t i = 0; i + 1 < batch.item_offsets.size(); ++i) {
    const std::int32_t s = batch.item_offsets[i] + index;
    QFT_ASSERT(s < batch.item_offsets[i + 1], "item {} has no sequence {}", i, index);
    const auto at = static_cast<std::size_t>(s);
    const std::int32_t begin = batch.cu_seqlens[at], end = batch.cu_seqlens[at + 1];
    const std::int32_t moved = static_cast<std::int32_t>(part.tokens.size()) - begin;
    part.tokens.insert(part.tokens.end(), batch.tokens.begin() + begin, batch.tokens.begin() + end);
    part.cu_seqlens.push_back(static_cast<std::int32_t>(part.tokens.size()));
    for (std::int32_t t = begin; t < end; ++t) taken[IndexSpace::token].push_back(static_cast<std::size_t>(t));
    const auto& labels = batch.label_positions;
    for (auto l = std::ranges::lower_bound(labels, begin); l != labels.end() && *l < end; ++l) {
      part.label_positions.push_back(*l + moved);
      taken[IndexSpace::label].push_back(static_cast<std::size_t>(l - labels.begin()));
    }
    part.samples.push_back(batch.samples[at]);
    part.item_offsets.push_back(static_cast<std::int32_t>(part.samples.size()));
    part.items.push_back(batch.items[i]);
    taken[IndexSpace::sequence].push_back(at);
    taken[IndexSpace::item].push_back(i);
  }
  for (const auto& [name, column] : batch.columns) part.columns.emplace(name, column.select(taken[column.space]));
  return part;
}

Loader::Loader(std::shared_ptr<const pack::PackReader> pack, LoaderOptions options, int rank, int world_size)
    : pack_(std::move(pack)),
      choice_(make_choice(*pack_, options.limits, options.seed)),
      schedule_(item_tokens(), pack_->item_labels(), options, world_size),
      shared_(options.share_prompts ? shared_prompts(*pack_) : std::vector<std::int32_t>()),
      rank_(rank),
      prefetch_steps_(static_cast<std::size_t>(std::max<std::int64_t>(options.prefetch_steps, 1))) {
  check_rank(rank, world_size);
}

Loader::~Loader() = default;

BatchBounds Loader::bounds() const {
  return batch_bounds(schedule_, item_tokens(), pack_->item_labels(), pack_->attributes().max_item_sequences, shared_,
                      choice_ ? choice_->sizes() : ItemSequences{});
}

double Loader::shared_token_fraction() const {
  if (shared_.empty()) return 0.0;
  std::int64_t shared = 0, tokens = 0;
  const auto add = [&](std::int64_t item) {
    shared += shared_[static_cast<std::size_t>(item)];
    tokens += pack_->item_tokens()[static_cast<std::size_t>(item)];
  };
  if (const ItemSubset& items = schedule_.options().items) {
    std::ranges::for_each(*items, add);
  } else {
    for (std::int64_t i = 0; i < pack_->num_items(); ++i) add(i);
  }
  return static_cast<double>(shared) / static_cast<double>(tokens);
}

StepBatch Loader::read_step(std::int64_t step) const {
  const trace::Scope scope("loader", [&] { return fmt::format("read step {}", step + 1); });
  StepPlan plan = schedule_.plan(step);
  StepBatch batch;
  batch.step = step;
  batch.epoch = plan.epoch;
  batch.global_label_tokens = plan.label_tokens;
  batch.global_tokens = plan.tokens;
  batch.global_samples = plan.samples;
  batch.weighted = pack_->has_weights();
  batch.max_micro_batches = plan.max_micro_batches;
  const auto pass = static_cast<std::uint64_t>(step / schedule_.steps_per_epoch());
  if (choice_) {
    batch.global_tokens = 0;
    for (const auto& items : plan.micro_batches)
      for (const std::int64_t item : items) batch.global_tokens += choice_->tokens(item, pass);
  }
  batch.first_micro_batch = plan.micro_batches_before(rank_, schedule_.world_size());
  batch.global_micro_batches = plan.micro_batches_before(schedule_.world_size(), schedule_.world_size());
  for (std::int64_t round = 0; round < plan.max_micro_batches; ++round) {
    const auto& items = plan.micro_batches[static_cast<std::size_t>(round * schedule_.world_size() + rank_)];
    if (!items.empty())
      batch.micro_batches.push_back(read_micro_batch(*pack_, items, schedule_.options().share_prompts, choice_.get(), pass));
  }
  return batch;
}

StepBatch Loader::next() {
  require(next_step_ < total_steps(), "the run has {} steps: there is no batch for step {}", total_steps(), next_step_);
  if (!prefetcher_) {
    prefetcher_ = std::make_unique<Prefetcher<StepBatch>>(
        [this, step = next_step_]() mutable -> std::optional<StepBatch> {
          if (step >= total_steps()) return std::nullopt;
          return read_step(step++);
        },
        prefetch_steps_);
  }
  StepBatch batch = prefetcher_->next().value();
  if (const CurriculumPlan* plan = schedule_.curriculum(); plan && rank_ == 0) {
    const std::size_t stage = plan->stage_of(next_step_);
    if (next_step_ + 1 == plan->steps_of(stage).second) log::info("{}", plan->describe(stage));
  }
  ++next_step_;
  return batch;
}

void Loader::seek(std::int64_t step) {
  require(step >= 0 && step <= total_steps(), "cannot seek to step {}: the run has {} steps", step, total_steps());
  prefetcher_.reset();
  next_step_ = step;
}

/// Returns everything that determines the order of samples.
json Loader::identity() const {
  const LoaderOptions& o = schedule_.options();
  json identity{{"pack", pack_->fingerprint()},
                {"items", schedule_.items_hash()},
                {"seed", o.seed},
                {"shuffle", o.shuffle},
                {"global_batch_size", schedule_.global_batch_size()},
                {"units_per_epoch", schedule_.units_per_epoch()},
                {"row_tokens", o.packing ? o.row_tokens : 0}};
  if (o.limits) {
    const auto limit = [](const std::optional<std::int64_t>& n) { return n ? json(*n) : json("all"); };
    identity["documents"] = {{"groups", limit(o.limits->groups)}, {"negatives", limit(o.limits->negatives)}};
  }
  if (!o.curriculum) return identity;
  // The shares follow the training's progress, so another length gives another order.
  identity["total_steps"] = schedule_.total_steps();
  identity["curriculum"] = {{"seed", o.curriculum_seed}, {"levels", o.curriculum->levels}};
  for (const CurriculumStage& stage : o.curriculum->stages)
    identity["curriculum"]["stages"].push_back({{"until", stage.until}, {"shares", stage.shares}});
  return identity;
}

namespace {

/// Returns the remedy that restores the order of samples in `saved`.
std::string remedy_for(std::string_view key, const json& saved) {
  if (key == "global_batch_size") return fmt::format("set global_batch_size: {}", saved.dump());
  if (key == "seed") return fmt::format("set data_seed: {}", saved.dump());
  if (key == "row_tokens") return "set packing and cutoff_len as they were";
  if (key == "shuffle") return "set disable_shuffling as it was";
  if (key == "units_per_epoch") return "set dataloader_drop_last as it was";
  if (key == "total_steps" || key == "curriculum") return "set the curriculum and the run's length as they were";
  return "use the same data and the same val_size";
}

/// The limits of an item's documents stand in keys of the stage.
void require_same_limits(const json& mine, const json& saved, config::SampleKind sample) {
  const bool ranks = sample == config::SampleKind::ranking;
  const std::pair<std::string_view, std::string_view> keys[] = {
      {"groups", ranks ? "max_positive_samples" : ""}, {"negatives", ranks ? "max_negative_samples" : "infonce_hard_negatives"}};
  std::string here, before, remedy;
  const auto add = [](std::string& text, std::string_view key, const std::string& value) {
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", key, value);
  };
  for (const auto& [name, key] : keys) {
    const json now = mine.value(name, json()), then = saved.is_object() ? saved.value(name, json()) : json();
    if (now == then || key.empty() || then.is_null()) continue;
    const auto shown = [](const json& limit) { return limit.is_string() ? "all (not set)" : limit.dump(); };
    add(here, key, shown(now));
    add(before, key, shown(then));
    add(remedy, then.is_string() ? "leave out" : "set",
        then.is_string() ? std::string(key) : fmt::format("{}: {}", key, then.dump()));
  }
  if (!here.empty())
    fail_config(
        "cannot resume: the run has {}, the checkpoint {}, so the documents of each step would differ: {}, or start a new run in "
        "another output_dir (or here, with overwrite_output_dir: true)",
        here, before, remedy);
}

}  // namespace

json Loader::position() const {
  json position = identity();
  position["step"] = next_step_;
  position["made_of"] = pack::described_inputs(pack_->attributes());
  return position;
}

void Loader::resume(const json& position) {
  pack::require_same_pack(position, pack_->attributes());
  const json expected = identity();
  for (const auto& [key, mine] : expected.items()) {
    const json saved = position.value(key, json());
    if (key == "documents") require_same_limits(mine, saved, schedule_.options().limits->sample);
    if (saved != mine)
      fail_config(
          "cannot resume: {} is {} here, {} in the checkpoint, so the order of the samples would differ: {}, or start a new run "
          "in another output_dir (or here, with overwrite_output_dir: true)",
          key, mine.dump(), saved.dump(), remedy_for(key, saved));
  }
  const json step = position.value("step", json());
  if (!step.is_number_integer()) fail_config("cannot resume: the checkpoint's data position has no step");
  const auto done = step.get<std::int64_t>();
  if (done > total_steps())
    fail_config(
        "cannot resume: the checkpoint is at step {}, but this run has {} steps: raise max_steps or num_train_epochs, or resume "
        "from an earlier checkpoint",
        done, total_steps());
  seek(done);
}

EvalLoader::EvalLoader(std::shared_ptr<const pack::PackReader> pack, ItemSubset items, std::int64_t micro_batch_size, int rank,
                       int world_size, std::int64_t max_items, bool share_prompts, std::shared_ptr<const ItemChoice> choice)
    : pack_(std::move(pack)),
      choice_(std::move(choice)),
      items_(std::move(items)),
      micro_batch_size_(micro_batch_size),
      rank_(rank),
      world_size_(world_size),
      share_prompts_(share_prompts) {
  check_rank(rank, world_size);
  if (micro_batch_size < 1) fail_config("per_device_eval_batch_size is {}: set it to 1 or more", micro_batch_size);
  num_items_ = items_ ? static_cast<std::int64_t>(items_->size()) : pack_->num_items();
  if (max_items > 0) num_items_ = std::min(num_items_, max_items);
  const std::int64_t per_round = micro_batch_size * world_size;
  max_micro_batches_ = (num_items_ + per_round - 1) / per_round;
  for (std::int64_t i = 0, micro_tokens = 0; i < num_items_; ++i) {
    const auto item = static_cast<std::size_t>(item_at(i));
    const std::int64_t tokens = choice_ ? choice_->tokens(item_at(i), 0) : pack_->item_tokens()[item];
    tokens_ += tokens;
    micro_tokens = i % micro_batch_size == 0 ? tokens : micro_tokens + tokens;
    max_micro_batch_tokens_ = std::max(max_micro_batch_tokens_, micro_tokens);
    label_tokens_ += pack_->item_labels()[item];
  }
}

EvalLoader::~EvalLoader() = default;

std::int64_t EvalLoader::item_at(std::int64_t index) const {
  return items_ ? items_->at(static_cast<std::size_t>(index)) : index;
}

MicroBatch EvalLoader::read_round(std::int64_t round) const {
  const std::int64_t begin = std::min((round * world_size_ + rank_) * micro_batch_size_, num_items_);
  const std::int64_t end = std::min(begin + micro_batch_size_, num_items_);
  std::vector<std::int64_t> items;
  for (std::int64_t i = begin; i < end; ++i) items.push_back(item_at(i));
  return read_micro_batch(*pack_, items, share_prompts_, choice_.get(), /*epoch=*/0);
}

std::optional<MicroBatch> EvalLoader::next() {
  if (!prefetcher_) {
    prefetcher_ = std::make_unique<Prefetcher<MicroBatch>>(
        [this, round = std::int64_t{0}]() mutable -> std::optional<MicroBatch> {
          if (round >= max_micro_batches_) return std::nullopt;
          return read_round(round++);
        },
        2);
  }
  return prefetcher_->next();
}

void EvalLoader::rewind() {
  prefetcher_.reset();
}

}  // namespace qft::loader
