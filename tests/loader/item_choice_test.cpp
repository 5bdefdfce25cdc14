// Items with varying numbers of sequences: which of them a step takes, and the batches that hold them.
#include "qft/loader/item_choice.h"

#include "qft/core/error.h"
#include "qft/loader/loader.h"

#include <algorithm>
#include <map>
#include <set>

#include "pack/fixture.h"
#include <gtest/gtest.h>

namespace qft::loader {
namespace {

using config::ItemLimits;
using config::SampleKind;
using test::contains;
using test::error_of;
using test::TempDir;
using Indices = std::vector<std::int32_t>;

/// Items of 4, 1 and 6 sequences with 1, 0 and 2 positives; sequence n has n + 1 tokens.
SequenceTable small_table(std::int32_t positives_of_second = 0) {
  return {{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}, {0, 4, 5, 11}, {1, positives_of_second, 2}};
}

TEST(ItemChoice, TakesAllSequencesWithoutLimits) {
  for (const SampleKind kind : {SampleKind::texts, SampleKind::ranking}) {
    const ItemChoice choice(small_table(), {.sample = kind}, 1);
    EXPECT_EQ(choice.sequences(0, 5), (Indices{0, 1, 2, 3}));
    EXPECT_EQ(choice.sequences(1, 5), (Indices{0}));
    EXPECT_EQ(choice.tokens(2, 0), 6 + 7 + 8 + 9 + 10 + 11);
    EXPECT_EQ(choice.most_tokens()[2], 51);
    EXPECT_EQ(choice.sizes().counts[2], 6);
    EXPECT_EQ(choice.sizes().longest[0], 4);
  }
}

TEST(ItemChoice, CutsOrRepeatsTheNegativesOfTexts) {
  SequenceTable table = small_table();
  table.offsets = {0, 4, 8, 11};  // 2, 2 and 1 negatives
  table.positives = {1, 1, 1};
  const auto of = [&](std::int64_t negatives) {
    return ItemChoice(table, {.sample = SampleKind::texts, .negatives = negatives}, 1);
  };
  EXPECT_EQ(of(1).sequences(0, 3), (Indices{0, 1, 2}));
  EXPECT_EQ(of(5).sequences(1, 3), (Indices{0, 1, 2, 3, 2, 3, 2}));
  EXPECT_EQ(of(5).most_tokens()[0], 1 + 2 + 3 + 4 + 3 + 4 + 3);
  EXPECT_EQ(of(5).sizes().counts[0], 7);
  table.positives[2] = 2;
  EXPECT_EQ(of(0).sequences(2, 3), (Indices{0, 1, 2}));
  EXPECT_TRUE(contains(error_of([&] { of(1); }), "item 2: it has no negatives, but 1 are asked for"));
}

TEST(ItemChoice, DrawsGroupsOfRankings) {
  const ItemChoice choice(small_table(), {.sample = SampleKind::ranking, .groups = 2, .negatives = 3}, 7);
  EXPECT_EQ(choice.sizes().counts[0], 4);
  EXPECT_EQ(choice.sizes().counts[2], 8);
  EXPECT_EQ(choice.most_tokens()[2], 6 + 7 + 2 * (9 + 10 + 11));
  std::map<std::int32_t, int> drawn;
  for (std::uint64_t epoch = 0; epoch < 400; ++epoch) {
    const Indices all = choice.sequences(2, epoch);
    ASSERT_EQ(all.size(), 8U);
    for (const std::size_t group : {0U, 1U}) {
      const Indices part(all.begin() + static_cast<std::ptrdiff_t>(4 * group),
                         all.begin() + static_cast<std::ptrdiff_t>(4 * group + 4));
      EXPECT_EQ(part[0], static_cast<std::int32_t>(group));
      EXPECT_TRUE(std::ranges::is_sorted(part));
      EXPECT_EQ(std::set(part.begin(), part.end()).size(), 4U);
      for (std::size_t i = 1; i < 4; ++i) ++drawn[part[i]];
    }
    EXPECT_LE(choice.tokens(2, epoch), choice.most_tokens()[2]);
    EXPECT_EQ(choice.sequences(1, epoch), (Indices{0}));  // without positives: a group of negatives
  }
  ASSERT_EQ(drawn.size(), 4U);
  for (const auto& [sequence, count] : drawn) EXPECT_NEAR(count, 600, 60) << sequence;  // 5 standard deviations are 61
  EXPECT_TRUE(choice.is_positive(2, 1) && !choice.is_positive(2, 2));
}

TEST(ItemChoice, IsAFunctionOfSeedEpochAndItem) {
  const ItemLimits limits{.sample = SampleKind::ranking, .groups = 1, .negatives = 2};
  const ItemChoice one(small_table(), limits, 7), again(small_table(), limits, 7), other(small_table(), limits, 8);
  int by_seed = 0, by_epoch = 0;
  for (std::uint64_t epoch = 0; epoch < 50; ++epoch) {
    EXPECT_EQ(one.sequences(2, epoch), again.sequences(2, epoch));
    by_seed += one.sequences(2, epoch) != other.sequences(2, epoch);
    by_epoch += one.sequences(2, epoch) != one.sequences(2, epoch + 1);
  }
  EXPECT_GT(by_seed, 20);
  EXPECT_GT(by_epoch, 20);
}

TEST(ItemChoice, RefusesItemsOfWhichNothingIsLeft) {
  const ItemLimits limits{.sample = SampleKind::ranking, .groups = 1, .negatives = 0};
  EXPECT_TRUE(contains(error_of([&] { ItemChoice(small_table(), limits, 1); }), "item 1: no document is left"));
  EXPECT_NO_THROW(ItemChoice(small_table(1), limits, 1));
}

/// Expects that a batch holds exactly the chosen sequences of its items.
void expect_chosen(const MicroBatch& batch, const pack::PackReader& pack, const ItemChoice& choice, std::uint64_t epoch) {
  const std::vector<std::int64_t> offsets = pack.item_offsets();
  std::size_t s = 0;
  ASSERT_EQ(batch.item_offsets.size(), batch.items.size() + 1);
  const Column* labels = choice.ranks() ? &batch.columns.at(std::string(columns::kDocumentLabels)) : nullptr;
  for (std::size_t i = 0; i < batch.items.size(); ++i) {
    EXPECT_EQ(batch.item_offsets[i], static_cast<std::int32_t>(s));
    const encode::EncodedItem item = test::make_list(batch.items[i]);
    for (const std::int32_t sequence : choice.sequences(batch.items[i], epoch)) {
      const auto begin = batch.tokens.begin() + batch.cu_seqlens[s], end = batch.tokens.begin() + batch.cu_seqlens[s + 1];
      EXPECT_EQ(Indices(begin, end), item.sequences[static_cast<std::size_t>(sequence)].ids);
      EXPECT_EQ(batch.samples[s], offsets[static_cast<std::size_t>(batch.items[i])] + sequence);
      if (labels) {
        EXPECT_EQ(labels->values[s], sequence < std::ssize(item.sequences) / 3 ? 1.0 : 0.0);
      }
      ++s;
    }
  }
  EXPECT_EQ(batch.samples.size(), s);
  EXPECT_EQ(batch.item_offsets.back(), static_cast<std::int32_t>(s));
}

LoaderOptions list_options(const ItemLimits& limits) {
  LoaderOptions options;
  options.micro_batch_size = 2;
  options.global_batch_size = 6;
  options.num_epochs = 2;
  options.limits = limits;
  return options;
}

constexpr ItemLimits kDrawn{.sample = SampleKind::ranking, .groups = 2, .negatives = 2};

TEST(VaryingItems, StepsHoldTheChosenSequencesOnAnyNumberOfRanks) {
  const TempDir dir;
  const auto pack = test::build_lists(dir / "p.h5", 20);
  for (const ItemLimits& limits : {kDrawn, ItemLimits{.sample = SampleKind::ranking}}) {
    const ItemChoice choice(*pack, limits, 42);
    for (const int world : {1, 2, 3, 4}) {
      std::vector<std::unique_ptr<Loader>> loaders;
      for (int r = 0; r < world; ++r) loaders.push_back(std::make_unique<Loader>(pack, list_options(limits), r, world));
      const BatchBounds bounds = loaders[0]->bounds();
      for (std::int64_t step = 0; step < loaders[0]->total_steps(); ++step) {
        std::int64_t tokens = 0, announced = 0;
        for (auto& loader : loaders) {
          const StepBatch batch = loader->next();
          announced = batch.global_tokens;
          for (const MicroBatch& micro : batch.micro_batches) {
            expect_chosen(micro, *pack, choice, static_cast<std::uint64_t>(step / loader->steps_per_epoch()));
            tokens += std::ssize(micro.tokens);
            EXPECT_LE(std::ssize(micro.tokens), bounds.shape.tokens);
            EXPECT_LE(std::ssize(micro.samples), bounds.shape.sequences);
          }
        }
        EXPECT_EQ(tokens, announced);
      }
    }
  }
}

TEST(VaryingItems, ResumeInTheMiddleOfAnEpochOnOtherRanks) {
  const TempDir dir;
  const auto pack = test::build_lists(dir / "p.h5", 20);
  Loader first(pack, list_options(kDrawn), 0, 1);
  std::vector<std::vector<std::int64_t>> samples;
  nlohmann::json position;
  for (std::int64_t step = 0; step < first.total_steps(); ++step) {
    if (step == 2) position = first.position();
    std::vector<std::int64_t>& all = samples.emplace_back();
    for (const MicroBatch& micro : first.next().micro_batches) all.insert(all.end(), micro.samples.begin(), micro.samples.end());
    std::ranges::sort(all);
  }
  EXPECT_NE(samples[0], samples[static_cast<std::size_t>(first.steps_per_epoch())]);
  std::vector<std::unique_ptr<Loader>> others;
  for (int r = 0; r < 3; ++r) {
    others.push_back(std::make_unique<Loader>(pack, list_options(kDrawn), r, 3));
    others.back()->resume(position);
  }
  for (std::size_t step = 2; step < samples.size(); ++step) {
    std::vector<std::int64_t> all;
    for (auto& loader : others)
      for (const MicroBatch& micro : loader->next().micro_batches)
        all.insert(all.end(), micro.samples.begin(), micro.samples.end());
    std::ranges::sort(all);
    EXPECT_EQ(all, samples[step]);
  }
  const auto refusal = [&](const ItemLimits& limits) {
    return error_of([&] { Loader(pack, list_options(limits), 0, 1).resume(position); });
  };
  const std::string one = refusal({.sample = SampleKind::ranking, .groups = 1, .negatives = 2});
  EXPECT_TRUE(contains(one, "the run has max_positive_samples 1, the checkpoint max_positive_samples 2")) << one;
  EXPECT_TRUE(contains(one, ": set max_positive_samples: 2, or start")) << one;
  const std::string both = refusal({.sample = SampleKind::ranking, .groups = 1, .negatives = 3});
  EXPECT_TRUE(contains(both, "set max_positive_samples: 2, set max_negative_samples: 2")) << both;
}

TEST(VaryingItems, AResumeNamesTheNumberOfHardNegatives) {
  const TempDir dir;
  std::vector<encode::EncodedItem> items;  // anchors with a positive and two negatives
  for (std::int64_t i = 0; i < 12; ++i) items.push_back(test::make_documents(i, 4, 1));
  const auto pack = test::build_varying(dir / "p.h5", items);
  const auto of = [&](std::optional<std::int64_t> negatives) {
    return Loader(pack, list_options({.sample = SampleKind::texts, .negatives = negatives}), 0, 1);
  };
  const nlohmann::json all = of({}).position(), two = of(2).position();
  const std::string fewer = error_of([&] { of(3).resume(two); }), none = error_of([&] { of(3).resume(all); });
  EXPECT_TRUE(contains(fewer, "infonce_hard_negatives 3, the checkpoint infonce_hard_negatives 2")) << fewer;
  EXPECT_TRUE(contains(none, "infonce_hard_negatives all (not set)") && contains(none, "leave out infonce_hard_negatives"))
      << none;
}

TEST(VaryingItems, AreEvaluatedAsInTheFirstEpochOrWhole) {
  const TempDir dir;
  const auto pack = test::build_lists(dir / "p.h5", 20);
  for (const ItemLimits& limits : {kDrawn, ItemLimits{.sample = SampleKind::ranking}}) {
    const auto choice = make_choice(*pack, limits, 42);
    std::int64_t tokens = 0;
    EvalLoader loader(pack, nullptr, 3, 0, 1, 0, false, choice);
    for (std::int64_t round = 0; round < loader.max_micro_batches(); ++round) {
      const MicroBatch batch = loader.next().value();
      expect_chosen(batch, *pack, *choice, 0);
      tokens += std::ssize(batch.tokens);
      EXPECT_LE(std::ssize(batch.tokens), loader.max_micro_batch_tokens());
    }
    EXPECT_EQ(loader.global_tokens(), tokens);
  }
  EXPECT_EQ(make_choice(*pack, std::nullopt, 42), nullptr);
}

}  // namespace
}  // namespace qft::loader
