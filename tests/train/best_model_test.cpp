#include "qft/train/best_model.h"

#include <cmath>

#include <gtest/gtest.h>

namespace qft::train {
namespace {

TEST(BestModel, KeepsTheCheckpointOfTheLowestLoss) {
  BestModel best;
  best.observe(2.0, 10, false);
  best.saved("checkpoint-10", 10);
  best.observe(1.0, 20, false);
  EXPECT_EQ(best.checkpoint, "checkpoint-10");  // not saved yet
  best.saved("checkpoint-20", 20);
  best.observe(1.0, 30, false);  // equal is not better
  best.saved("checkpoint-30", 30);
  best.observe(std::nan(""), 40, false);
  EXPECT_EQ(best.checkpoint, "checkpoint-20");
  EXPECT_EQ(best.metric, 1.0);
  EXPECT_EQ(best.evaluations_since, 2);
  EXPECT_FALSE(best.gives_up(3));
  EXPECT_TRUE(best.gives_up(2));
  EXPECT_FALSE(best.gives_up(std::nullopt));
}

TEST(BestModel, OrTheHighestWhereGreaterIsBetter) {
  BestModel best;
  best.observe(1.0, 1, true);
  best.observe(2.0, 2, true);
  best.saved("checkpoint-2", 2);
  best.observe(1.5, 3, true);
  EXPECT_EQ(best.checkpoint, "checkpoint-2");
  EXPECT_EQ(best.step, 2);
}

}  // namespace
}  // namespace qft::train
