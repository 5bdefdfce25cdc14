#include "qft/train/best_model.h"

#include <cmath>
#include <limits>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

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
  EXPECT_EQ(best.reported()->metric, 1.0);
  EXPECT_EQ(best.evaluations_since, 2);
  EXPECT_FALSE(best.stops_early(3));
  EXPECT_TRUE(best.stops_early(2));
  EXPECT_FALSE(best.stops_early(std::nullopt));
}

TEST(BestModel, OrTheHighestWhereGreaterIsBetter) {
  BestModel best;
  best.observe(1.0, 1, true);
  best.observe(2.0, 2, true);
  best.saved("checkpoint-2", 2);
  best.observe(1.5, 3, true);
  EXPECT_EQ(best.checkpoint, "checkpoint-2");
  EXPECT_EQ(best.reported()->step, 2);
}

TEST(BestModel, TakesWhatIsNotFiniteForWorseThanAny) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  for (const bool greater : {false, true}) {
    for (const double value : {kInfinity, -kInfinity, std::nan("")}) {
      BestModel best;
      best.observe(value, 1, greater);
      best.saved("checkpoint-1", 1);
      EXPECT_EQ(best.checkpoint, "");
      best.observe(1.0, 2, greater);
      best.saved("checkpoint-2", 2);
      best.observe(value, 3, greater);
      best.saved("checkpoint-3", 3);
      best = best_from_json(to_json(best));
      EXPECT_EQ(best.checkpoint, "checkpoint-2");
      EXPECT_EQ(best.reported()->metric, 1.0);
      EXPECT_EQ(best.evaluations_since, 1);
    }
  }
}

TEST(BestModel, ReadsAnInfiniteMeasurementAsNone) {
  const BestModel best = best_from_json({{"metric", nullptr},
                                         {"step", 1},
                                         {"evaluations_since", 0},
                                         {"checkpoint", "checkpoint-1"},
                                         {"at_checkpoint", {{"metric", nullptr}, {"step", 1}}}});
  EXPECT_EQ(best.checkpoint, "");
  EXPECT_FALSE(best.reported());
}

// eval_steps 5, save_steps 10: the evaluation of step 15 does not belong to the checkpoint of step 10.
TEST(BestModel, ACheckpointIsCalledBestByItsOwnMeasurement) {
  BestModel best;
  const auto evaluate = [&](double loss, std::int64_t step, bool saves) {
    best.observe(loss, step, false);
    if (saves) best.saved("checkpoint-" + std::to_string(step), step);
  };
  evaluate(0.9, 5, false);
  EXPECT_EQ(best.reported()->step, 5);
  evaluate(1.0, 10, true);  // worse than step 5, but the best evaluation with a checkpoint
  EXPECT_EQ(best.checkpoint, "checkpoint-10");
  evaluate(0.5, 15, false);
  best = best_from_json(to_json(best));
  EXPECT_EQ(best.checkpoint, "checkpoint-10");
  EXPECT_EQ(best.reported()->metric, 1.0);
  EXPECT_EQ(best.evaluations_since, 0);
  evaluate(0.8, 20, true);
  EXPECT_EQ(best.checkpoint, "checkpoint-20");
  EXPECT_EQ(best.reported()->metric, 0.8);
  EXPECT_EQ(best.evaluations_since, 1);  // patience counts evaluations, saved or not
  best.saved("checkpoint-23", 23);       // the last step was not evaluated
  EXPECT_EQ(best.checkpoint, "checkpoint-20");
}

TEST(BestModel, ReadsWhatOlderCheckpointsSay) {
  const auto read = [](std::int64_t step) {
    return best_from_json({{"metric", 0.5}, {"step", step}, {"evaluations_since", 1}, {"checkpoint", "checkpoint-10"}});
  };
  EXPECT_EQ(read(10).at_checkpoint.metric, 0.5);
  EXPECT_EQ(read(15).checkpoint, "");
}

}  // namespace
}  // namespace qft::train
