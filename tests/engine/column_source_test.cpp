#include "qft/engine/column_source.h"

#include "qft/engine/objectives.h"

#include <gtest/gtest.h>

namespace qft::engine {
namespace {

TEST(SourceState, MeanOfTheStepsMeans) {
  RunningMean mean;
  for (const double value : {1.0, 2.0, 6.0}) mean = mean.with(value);
  EXPECT_DOUBLE_EQ(mean.mean, 3.0);
  EXPECT_EQ(mean.steps, 3);
}

TEST(SourceState, ComesBackFromJson) {
  nlohmann::json progress = {{"step", 7}};
  write_state({}, progress);
  EXPECT_EQ(progress, (nlohmann::json{{"step", 7}, {"reward", {{"mean", 0.0}, {"steps", 0}}}})) << "as earlier versions wrote it";
  EXPECT_EQ(source_state_from_json(progress), SourceState());
  EXPECT_EQ(source_state_from_json({{"step", 7}}), SourceState()) << "a checkpoint without it";

  const SourceState state{{{std::string(totals::kReward), {0.25, 4}}, {"baseline", {-1.5, 2}}}};
  write_state(state, progress);
  EXPECT_EQ(progress.at("reward"), (nlohmann::json{{"mean", 0.25}, {"steps", 4}}));
  EXPECT_EQ(source_state_from_json(progress), state);
}

}  // namespace
}  // namespace qft::engine
