#include "qft/core/error.h"
#include "qft/loader/loader.h"

#include <algorithm>
#include <fstream>
#include <set>

#include "io/temp_dir.h"
#include "pack/fixture.h"
#include <gtest/gtest.h>

namespace qft::loader {
namespace {

using test::contains;
using test::error_of;
using test::make_item;
using test::TempDir;

/// Compares every sequence of a micro-batch with its item.
void expect_faithful(const MicroBatch& batch, int sequences_per_item) {
  ASSERT_EQ(batch.cu_seqlens.size(), batch.samples.size() + 1);
  EXPECT_EQ(batch.cu_seqlens.front(), 0);
  EXPECT_EQ(batch.cu_seqlens.back(), static_cast<std::int32_t>(batch.tokens.size()));
  std::vector<std::int32_t> labels;
  for (std::size_t s = 0; s < batch.samples.size(); ++s) {
    const auto item = make_item(batch.samples[s] / sequences_per_item, sequences_per_item);
    const encode::EncodedSequence& sequence = item.sequences[static_cast<std::size_t>(batch.samples[s] % sequences_per_item)];
    const std::int32_t begin = batch.cu_seqlens[s], end = batch.cu_seqlens[s + 1];
    EXPECT_EQ(std::vector<std::int32_t>(batch.tokens.begin() + begin, batch.tokens.begin() + end), sequence.ids);
    for (const encode::Span& span : sequence.label_spans)
      for (std::int32_t p = span.begin; p < span.end; ++p)
        if (p > 0) labels.push_back(begin + p);
  }
  EXPECT_EQ(batch.label_positions, labels);
  // All sequences of an item lie in one micro-batch, one after the other.
  ASSERT_EQ((batch.item_offsets.size() - 1) * static_cast<std::size_t>(sequences_per_item), batch.samples.size());
  for (std::size_t i = 0; i < batch.item_offsets.size(); ++i) {
    EXPECT_EQ(batch.item_offsets[i], static_cast<std::int32_t>(i) * sequences_per_item);
    if (i > 0) {
      EXPECT_EQ(batch.samples[static_cast<std::size_t>(batch.item_offsets[i - 1])] % sequences_per_item, 0);
    }
  }
}

/// A column of each index space, whose entries are their own numbers.
Columns numbered_columns(const MicroBatch& batch) {
  const auto numbered = [](IndexSpace space, std::size_t count) {
    Column column{space};
    for (std::size_t i = 0; i < count; ++i) column.values.push_back(static_cast<double>(i));
    return column;
  };
  return {{"tokens", numbered(IndexSpace::token, batch.tokens.size())},
          {"labels", numbered(IndexSpace::label, batch.label_positions.size())},
          {"sequences", numbered(IndexSpace::sequence, batch.samples.size())},
          {"items", numbered(IndexSpace::item, batch.item_offsets.size() - 1)}};
}

/// Expects that the entries of numbered_columns() moved with what they belong to.
void expect_own_columns(const MicroBatch& part, const MicroBatch& batch, std::int32_t which) {
  const auto number = [](const Column& column, std::size_t i) { return static_cast<std::size_t>(column.values.at(i)); };
  ASSERT_EQ(part.columns.at("tokens").size(), part.tokens.size());
  for (std::size_t t = 0; t < part.tokens.size(); ++t)
    EXPECT_EQ(part.tokens[t], batch.tokens[number(part.columns.at("tokens"), t)]);
  ASSERT_EQ(part.columns.at("labels").size(), part.label_positions.size());
  for (std::size_t l = 0; l < part.label_positions.size(); ++l)
    EXPECT_EQ(part.tokens[static_cast<std::size_t>(part.label_positions[l])],
              batch.tokens[static_cast<std::size_t>(batch.label_positions[number(part.columns.at("labels"), l)])]);
  for (std::size_t i = 0; i < part.samples.size(); ++i) {
    EXPECT_EQ(number(part.columns.at("sequences"), i), 2 * i + static_cast<std::size_t>(which));
    EXPECT_EQ(number(part.columns.at("items"), i), i);
  }
}

TEST(SequencesOfItems, AreTheSameSequencesWithTheirOwnLabels) {
  const TempDir dir;
  const auto pack = test::build_pack(dir / "p.h5", 7, 2);
  LoaderOptions options;
  options.micro_batch_size = 3;
  options.global_batch_size = 7;
  Loader loader(pack, options, 0, 1);
  for (MicroBatch& batch : loader.next().micro_batches)
    for (const std::int32_t which : {0, 1}) {
      batch.columns = numbered_columns(batch);
      const MicroBatch part = select_sequence(batch, which);
      ASSERT_EQ(part.samples.size(), batch.item_offsets.size() - 1);
      ASSERT_EQ(part.item_offsets.size(), batch.item_offsets.size());
      std::vector<std::int32_t> labels;
      for (std::size_t i = 0; i < part.samples.size(); ++i) {
        EXPECT_EQ(part.samples[i], batch.samples[2 * i + static_cast<std::size_t>(which)]);
        const auto item = make_item(part.samples[i] / 2, 2);
        const auto& sequence = item.sequences[static_cast<std::size_t>(which)];
        const std::int32_t begin = part.cu_seqlens[i], end = part.cu_seqlens[i + 1];
        EXPECT_EQ(std::vector<std::int32_t>(part.tokens.begin() + begin, part.tokens.begin() + end), sequence.ids);
        for (const encode::Span& span : sequence.label_spans)
          for (std::int32_t p = std::max(span.begin, 1); p < span.end; ++p) labels.push_back(begin + p);
      }
      EXPECT_EQ(part.label_positions, labels);
      expect_own_columns(part, batch, which);
    }
}

LoaderOptions small_options(bool packing) {
  LoaderOptions options;
  options.micro_batch_size = 2;
  options.global_batch_size = packing ? 5 : 12;
  options.num_epochs = 2;
  options.packing = packing;
  options.row_tokens = 128;
  return options;
}

TEST(Loader, RanksTogetherReadEverySampleOnceAndCountAlike) {
  const TempDir dir;
  for (const int sequences : {1, 2}) {
    const auto pack = test::build_pack(dir / "p.h5", 53, sequences);
    for (const bool packing : {false, true}) {
      for (const int world : {1, 2, 5}) {
        std::vector<std::unique_ptr<Loader>> loaders;
        for (int r = 0; r < world; ++r) loaders.push_back(std::make_unique<Loader>(pack, small_options(packing), r, world));
        std::multiset<std::int64_t> seen;
        for (std::int64_t step = 0; step < loaders[0]->total_steps(); ++step) {
          std::int64_t tokens = 0, labels = 0, most = 0, global_tokens = 0, global_labels = 0, max_micro_batches = 0;
          for (const auto& loader : loaders) {
            const StepBatch batch = loader->next();
            EXPECT_EQ(batch.step, step);
            for (const MicroBatch& micro : batch.micro_batches) {
              expect_faithful(micro, sequences);
              seen.insert(micro.samples.begin(), micro.samples.end());
              tokens += static_cast<std::int64_t>(micro.tokens.size());
              labels += static_cast<std::int64_t>(micro.label_positions.size());
            }
            most = std::max(most, static_cast<std::int64_t>(batch.micro_batches.size()));
            max_micro_batches = batch.max_micro_batches;
            global_tokens = batch.global_tokens;
            global_labels = batch.global_label_tokens;
          }
          EXPECT_EQ(std::tuple(tokens, labels, most), std::tuple(global_tokens, global_labels, max_micro_batches));
        }
        for (std::int64_t sample = 0; sample < 53 * sequences; ++sample) EXPECT_EQ(seen.count(sample), 2u);
        EXPECT_THROW(loaders[0]->next(), Error);
      }
    }
  }
}

TEST(Loader, SeekingGivesWhatReadingOnGives) {
  const TempDir dir;
  const auto pack = test::build_pack(dir / "p.h5", 53);
  for (const bool packing : {false, true}) {
    Loader sequential(pack, small_options(packing), 1, 2), seeking(pack, small_options(packing), 1, 2);
    std::vector<StepBatch> batches;
    for (std::int64_t step = 0; step < sequential.total_steps(); ++step) batches.push_back(sequential.next());
    for (std::int64_t step = sequential.total_steps(); step-- > 0;) {
      seeking.seek(step);
      const StepBatch batch = seeking.next(), &expected = batches[static_cast<std::size_t>(step)];
      ASSERT_EQ(batch.micro_batches.size(), expected.micro_batches.size());
      EXPECT_EQ(batch.epoch, expected.epoch);
      for (std::size_t m = 0; m < batch.micro_batches.size(); ++m) {
        EXPECT_EQ(batch.micro_batches[m].tokens, expected.micro_batches[m].tokens);
        EXPECT_EQ(batch.micro_batches[m].samples, expected.micro_batches[m].samples);
      }
    }
    EXPECT_THROW(seeking.seek(-1), Error);
    EXPECT_THROW(seeking.seek(sequential.total_steps() + 1), Error);
  }
}

std::multiset<std::int64_t> samples_of_step(const std::shared_ptr<const pack::PackReader>& pack, const nlohmann::json& position,
                                            int world) {
  std::multiset<std::int64_t> samples;
  for (int r = 0; r < world; ++r) {
    Loader loader(pack, small_options(false), r, world);
    loader.resume(position);
    for (const MicroBatch& micro : loader.next().micro_batches) samples.insert(micro.samples.begin(), micro.samples.end());
  }
  return samples;
}

TEST(Loader, ResumesOnAnotherNumberOfRanks) {
  const TempDir dir;
  const auto pack = test::build_pack(dir / "p.h5", 53);
  Loader first(pack, small_options(false), 0, 2);
  for (int i = 0; i < 3; ++i) first.next();
  const nlohmann::json position = first.position();
  EXPECT_EQ(position.at("step"), 3);
  const auto expected = samples_of_step(pack, position, 2);
  EXPECT_EQ(expected.size(), 12u);
  EXPECT_EQ(samples_of_step(pack, position, 1), expected);
  EXPECT_EQ(samples_of_step(pack, position, 7), expected);
}

TEST(Loader, RefusesToResumeInAnotherOrder) {
  const TempDir dir;
  const auto pack = test::build_pack(dir / "p.h5", 53), other = test::build_pack(dir / "q.h5", 60);
  const nlohmann::json position = Loader(pack, small_options(false), 0, 2).position();
  LoaderOptions options = small_options(false);
  options.seed = 5;
  const std::string error = error_of([&] { Loader(pack, options, 0, 2).resume(position); });
  EXPECT_TRUE(contains(error, "seed is 5 here, 42 in the checkpoint"));
  EXPECT_THROW(Loader(pack, small_options(true), 0, 2).resume(position), ConfigError);
  EXPECT_THROW(Loader(other, small_options(false), 0, 2).resume(position), ConfigError);
  EXPECT_THROW(Loader(pack, small_options(false), 0, 2).resume(nlohmann::json::object()), ConfigError);
}

TEST(Loader, NamesTheDamagedItemItMeets) {
  const TempDir dir;
  const auto pack = test::build_pack(dir / "p.h5", 5);
  const auto ids = make_item(3).sequences[0].ids;
  std::string bytes = test::read_bytes(dir / "p.h5");
  const std::string needle(reinterpret_cast<const char*>(ids.data()), ids.size() * sizeof ids[0]);
  const std::size_t at = bytes.find(needle);
  ASSERT_NE(at, std::string::npos);
  std::fstream(dir / "p.h5", std::ios::in | std::ios::out | std::ios::binary)
      .seekp(static_cast<std::streamoff>(at + 4))
      .put(static_cast<char>(bytes[at + 4] ^ 1));
  Loader loader(pack, small_options(false), 0, 1);
  EXPECT_TRUE(contains(error_of([&] { loader.next(); }), "item 3"));
}

TEST(EvalLoader, RanksTogetherReadEveryItemOnceInAsManyRounds) {
  const TempDir dir;
  const auto pack = test::build_pack(dir / "p.h5", 23);
  const ItemSubset odd = std::make_shared<std::vector<std::int64_t>>(std::vector<std::int64_t>{1, 3, 5, 7, 9});
  for (const ItemSubset& items : {ItemSubset(), odd}) {
    for (const int world : {1, 3, 8}) {
      std::multiset<std::int64_t> seen;
      std::int64_t labels = 0, expected_labels = 0;
      for (int r = 0; r < world; ++r) {
        EvalLoader loader(pack, items, 4, r, world);
        expected_labels = loader.global_label_tokens();
        for (int pass = 0; pass < 2; ++pass) {
          for (std::int64_t round = 0; round < loader.max_micro_batches(); ++round) {
            const auto batch = loader.next();
            ASSERT_TRUE(batch.has_value());
            expect_faithful(*batch, 1);
            if (pass == 1) continue;
            seen.insert(batch->samples.begin(), batch->samples.end());
            labels += static_cast<std::int64_t>(batch->label_positions.size());
          }
          EXPECT_FALSE(loader.next().has_value());
          loader.rewind();
        }
      }
      EXPECT_EQ(labels, expected_labels);
      if (items)
        EXPECT_EQ(seen, std::multiset<std::int64_t>(items->begin(), items->end()));
      else
        EXPECT_EQ(seen.size(), 23u);
    }
  }
  EXPECT_EQ(EvalLoader(pack, nullptr, 4, 0, 1, 10).num_items(), 10);
}

}  // namespace
}  // namespace qft::loader
