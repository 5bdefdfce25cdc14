#include "qft/loader/shared_prompts.h"

#include "qft/loader/loader.h"

#include <utility>

#include "io/temp_dir.h"
#include "pack/fixture.h"
#include <gtest/gtest.h>

namespace qft::loader {
namespace {

using test::TempDir;
using Ids = std::vector<std::int32_t>;

/// Returns a pair whose answers begin at these positions.
pack::FlatItem pair(const Ids& chosen, const Ids& rejected, std::int32_t chosen_label, std::int32_t rejected_label) {
  pack::FlatItem item;
  item.ids = chosen;
  item.ids.insert(item.ids.end(), rejected.begin(), rejected.end());
  item.sequence_ends = {std::ssize(chosen), std::ssize(item.ids)};
  item.spans = {{chosen_label, static_cast<std::int32_t>(chosen.size())},
                {rejected_label, static_cast<std::int32_t>(rejected.size())}};
  item.span_ends = {1, 2};
  return item;
}

TEST(SharedPrompt, EndsBeforeTheTokenThatPredictsTheFirstLabel) {
  EXPECT_EQ(shared_prompt(pair({1, 2, 3, 4, 9}, {1, 2, 3, 4, 8}, 4, 4)), 3);
  // Answers with a common start, and an answer with later labels.
  EXPECT_EQ(shared_prompt(pair({1, 2, 3, 9, 9, 9}, {1, 2, 3, 9, 9, 8}, 3, 3)), 2);
  EXPECT_EQ(shared_prompt(pair({1, 2, 3, 9, 9, 9}, {1, 2, 3, 9, 9, 8}, 5, 3)), 2);
  EXPECT_EQ(shared_prompt(pair({1, 2, 3, 9, 9, 9}, {1, 2, 3, 9, 9, 8}, 3, 5)), 2);
  // Equal sequences also keep separate rows for their answers.
  EXPECT_EQ(shared_prompt(pair({1, 2, 3, 9}, {1, 2, 3, 9}, 2, 2)), 1);
}

TEST(SharedPrompt, IsNothingWithoutAPrefixOrWithShortPrompts) {
  EXPECT_EQ(shared_prompt(pair({5, 2, 3, 4, 9}, {1, 2, 3, 4, 8}, 4, 4)), 0);
  EXPECT_EQ(shared_prompt(pair({1, 2, 7, 4, 9}, {1, 2, 3, 4, 8}, 4, 4)), 2);
  EXPECT_EQ(shared_prompt(pair({1, 9, 9}, {1, 8, 8}, 1, 1)), 0);        // a prompt of one token
  EXPECT_EQ(shared_prompt(pair({1, 2, 9, 9}, {1, 2, 8, 8}, 2, 2)), 1);  // a prompt of two tokens
  EXPECT_EQ(shared_prompt(pair({1, 9, 9}, {1, 8, 8}, 0, 0)), 0);        // labels from the first token on
  pack::FlatItem without = pair({1, 2, 3, 4}, {1, 2, 3, 5}, 3, 3);
  without.spans.pop_back();
  without.span_ends = {1, 1};
  EXPECT_EQ(shared_prompt(without), 0);
}

/// Returns pair `number`: a prompt of 2 to 11 tokens and answers of 3 to 12; every third one has two prompts.
encode::EncodedItem make_pair(std::int64_t number) {
  const auto prompt = static_cast<std::int32_t>(2 + number * 7 % 10);
  encode::EncodedItem item = test::make_item(number, 2);
  for (std::int32_t s = 0; s < 2; ++s) {
    encode::EncodedSequence& sequence = item.sequences[static_cast<std::size_t>(s)];
    const auto answer = static_cast<std::int32_t>(3 + (number * 3 + 5 * s) % 10);
    sequence.ids.clear();
    for (std::int32_t t = 0; t < prompt + answer; ++t)
      sequence.ids.push_back(t < prompt && number % 3 != 0 ? 100 + t : 200 + 100 * s + t);
    sequence.label_spans = {{prompt, prompt + answer}};
  }
  return item;
}
std::int32_t shared_of(std::int64_t number) {
  return number % 3 == 0 ? 0 : static_cast<std::int32_t>(1 + number * 7 % 10);
}

std::shared_ptr<const pack::PackReader> pack_of_pairs(const std::filesystem::path& path, const std::string& stage,
                                                      std::int64_t count) {
  const auto comm = comm::make_self_communicator();
  pack::PackAttributes attributes = test::make_attributes();
  attributes.stage = stage;
  pack::PackBuilder(*comm, path, attributes).build(1, [&](std::size_t, pack::PackSink& sink) {
    for (std::int64_t i = 0; i < count; ++i) {
      auto item = make_pair(i);
      sink.count(item.dataset, 1, 0, false);
      sink.add(std::move(item));
    }
  });
  return pack::PackReader::open(path);
}

LoaderOptions options_of(bool share) {
  LoaderOptions options;
  options.micro_batch_size = 3;
  options.gradient_accumulation_steps = 2;
  options.num_epochs = 1;
  options.share_prompts = share;
  return options;
}

TEST(SharedPrompts, ChangeNoBatchButItsRows) {
  const TempDir dir;
  const auto pack = pack_of_pairs(dir / "p.h5", "dpo", 26);
  const std::vector<std::int32_t> known = shared_prompts(*pack);
  ASSERT_EQ(known.size(), 26U);
  for (std::int64_t i = 0; i < 26; ++i) EXPECT_EQ(known[static_cast<std::size_t>(i)], shared_of(i)) << i;
  std::int64_t all_rows = 0, all_tokens = 0, most_rows = 0, most_tokens = 0;
  Loader with(pack, options_of(true), 0, 1), without(pack, options_of(false), 0, 1);
  const BatchBounds bounds = with.bounds(), apart = without.bounds();
  for (std::int64_t step = 0; step < with.total_steps(); ++step) {
    const StepBatch shared = with.next(), plain = without.next();
    ASSERT_EQ(shared.micro_batches.size(), plain.micro_batches.size());
    EXPECT_EQ(shared.global_tokens, plain.global_tokens);
    for (std::size_t m = 0; m < plain.micro_batches.size(); ++m) {
      const MicroBatch &a = shared.micro_batches[m], &b = plain.micro_batches[m];
      EXPECT_EQ(std::tie(a.tokens, a.cu_seqlens, a.label_positions, a.samples, a.item_offsets),
                std::tie(b.tokens, b.cu_seqlens, b.label_positions, b.samples, b.item_offsets));
      EXPECT_TRUE(b.shared.empty());
      EXPECT_EQ(b.rows(), std::ssize(b.tokens));
      ASSERT_EQ(a.shared.size(), a.samples.size());
      std::int64_t again = 0;
      for (std::size_t s = 0; s < a.samples.size(); ++s) {
        EXPECT_EQ(a.shared[s], s % 2 == 0 ? 0 : shared_of(a.samples[s] / 2));
        again += a.shared[s];
      }
      EXPECT_EQ(a.rows(), std::ssize(a.tokens) - again);
      EXPECT_TRUE(select_sequence(a, 1).shared.empty());
      all_rows += a.rows();
      all_tokens += std::ssize(a.tokens);
      most_rows = std::max(most_rows, a.rows());
      most_tokens = std::max<std::int64_t>(most_tokens, std::ssize(a.tokens));
    }
  }
  EXPECT_LT(all_rows, all_tokens);
  EXPECT_EQ(bounds.shape.tokens, most_rows);
  EXPECT_EQ(bounds.shape.expanded, most_tokens);
  EXPECT_EQ(std::pair(apart.shape.tokens, apart.shape.expanded), std::pair(most_tokens, std::int64_t{0}));
  EXPECT_DOUBLE_EQ(with.shared_token_fraction(), 1.0 - static_cast<double>(all_rows) / static_cast<double>(all_tokens));
  EXPECT_EQ(without.shared_token_fraction(), 0.0);
}

TEST(SharedPrompts, AreThoseOfEvaluationsToo) {
  const TempDir dir;
  const auto pack = pack_of_pairs(dir / "p.h5", "dpo", 5);
  EvalLoader loader(pack, nullptr, 5, 0, 1, 0, true), apart(pack, nullptr, 5, 0, 1);
  const MicroBatch batch = loader.next().value();
  EXPECT_LT(batch.rows(), std::ssize(batch.tokens));
  EXPECT_EQ(batch.tokens, apart.next().value().tokens);
}

TEST(SharedPrompts, AreOfPairsAlone) {
  const TempDir dir;
  EXPECT_TRUE(shared_prompts(*pack_of_pairs(dir / "two.h5", "kto", 6)).empty());
  const auto single = test::build_pack(dir / "one.h5", 6);
  EXPECT_TRUE(shared_prompts(*single).empty());
  EXPECT_TRUE(EvalLoader(single, nullptr, 6, 0, 1, 0, true).next().value().shared.empty());
}

}  // namespace
}  // namespace qft::loader
