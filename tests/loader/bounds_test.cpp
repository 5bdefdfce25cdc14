#include "qft/loader/batch_bounds.h"

#include <algorithm>

#include <gtest/gtest.h>

namespace qft::loader {
namespace {

LoaderOptions options_of(std::int64_t micro, std::int64_t accumulation, bool packing) {
  LoaderOptions o;
  o.micro_batch_size = micro;
  o.gradient_accumulation_steps = accumulation;
  o.packing = packing;
  o.row_tokens = 100;
  o.num_epochs = 2;
  return o;
}

TEST(BatchBounds, AreReachedAndNeverExceeded) {
  std::vector<std::int32_t> tokens, labels;
  for (int i = 0; i < 200; ++i) {
    tokens.push_back(5 + i * 37 % 91);
    labels.push_back(1 + i % 5);
  }
  for (const bool packing : {false, true}) {
    const StepSchedule schedule(tokens, labels, options_of(3, 4, packing), 2);
    const BatchBounds bounds = batch_bounds(schedule, tokens, labels);
    BatchBounds seen;
    for (std::int64_t step = 0; step < schedule.total_steps(); ++step) {
      const StepPlan plan = schedule.plan(step);
      seen.max_micro_batches = std::max(seen.max_micro_batches, plan.max_micro_batches);
      for (const auto& items : plan.micro_batches) {
        std::int64_t t = 0, l = 0, longest = 0;
        for (const auto item : items) {
          const std::int64_t n = tokens[static_cast<std::size_t>(item)];
          t += n, l += labels[static_cast<std::size_t>(item)], longest = std::max(longest, n);
        }
        seen.shape.longest = std::max(seen.shape.longest, longest);
        seen.shape.padded = std::max(seen.shape.padded, longest * static_cast<std::int64_t>(items.size()));
        seen.shape.tokens = std::max(seen.shape.tokens, t);
        seen.shape.labels = std::max(seen.shape.labels, l);
        seen.shape.sequences = std::max(seen.shape.sequences, static_cast<std::int64_t>(items.size()));
      }
    }
    EXPECT_EQ(bounds.shape.tokens, seen.shape.tokens) << packing;
    EXPECT_EQ(bounds.shape.labels, seen.shape.labels) << packing;
    EXPECT_EQ(bounds.shape.sequences, seen.shape.sequences) << packing;
    EXPECT_EQ(bounds.shape.longest, seen.shape.longest) << packing;
    EXPECT_EQ(bounds.shape.padded, seen.shape.padded) << packing;
    EXPECT_LE(bounds.shape.padded, bounds.shape.longest * bounds.shape.sequences) << packing;
    EXPECT_EQ(bounds.max_micro_batches, seen.max_micro_batches) << packing;
    EXPECT_EQ(bounds.max_micro_batches, 4);
    EXPECT_LE(bounds.shape.tokens, packing ? 300 : 3 * 95);
  }
}

TEST(BatchBounds, OfALongRunHoldItsLongestItem) {
  std::vector<std::int32_t> tokens(3'000'000, 10), labels(3'000'000, 3);
  tokens[1'234'567] = 99;
  LoaderOptions options = options_of(1, 1, false);
  options.num_epochs = 1;
  const StepSchedule schedule(tokens, labels, options, 1);
  const BatchBounds bounds = batch_bounds(schedule, tokens, labels, 2);
  EXPECT_EQ(bounds.shape.tokens, 99);
  EXPECT_EQ(bounds.shape.longest, 99);
  EXPECT_EQ(bounds.shape.padded, 2 * 99);
}

TEST(BatchBounds, OfALongRunHoldItsFullestRow) {
  // Two million rows of one item each, and one of 20.
  std::vector<std::int32_t> tokens(2'100'000, 100), labels(2'100'020, 3);
  tokens.insert(tokens.begin() + 1'234'567, 20, 5);
  LoaderOptions options = options_of(2, 1, true);
  options.num_epochs = 1;
  const StepSchedule schedule(tokens, labels, options, 1);
  EXPECT_EQ(batch_bounds(schedule, tokens, labels).shape.sequences, 2 * 20);
  EXPECT_EQ(batch_bounds(schedule, tokens, labels, 2).shape.sequences, 2 * 20 * 2);
}

}  // namespace
}  // namespace qft::loader
