#include "qft/train/update_guard.h"

#include "qft/core/error.h"

#include <cmath>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace qft::train {
namespace {

constexpr double kNan = NAN;

TEST(UpdateGuard, LeavesOutWhatIsNotFinite) {
  GuardState state;
  EXPECT_EQ(judge_step(state, {}, 1, 2.0, 1.0, true), "");
  EXPECT_EQ(judge_step(state, {}, 2, kNan, 1.0, false), "loss nan and gradient norm 1 are not both finite");
  EXPECT_EQ(state.skipped, 1);
  EXPECT_EQ(state.skipped_in_row, 1);
  EXPECT_EQ(judge_step(state, {}, 3, 2.0, 1.0, true), "");
  EXPECT_EQ(state.skipped_in_row, 0);
  EXPECT_EQ(state.usual_loss, 2.0);
}

TEST(UpdateGuard, EndsAfterSoManyInARow) {
  GuardState state;
  const GuardPolicy policy{.max_skipped_updates = 3};
  for (int round = 0; round < 5; ++round) {  // two in a row are allowed, any number of times
    judge_step(state, policy, 1, kNan, kNan, false);
    judge_step(state, policy, 2, kNan, kNan, false);
    judge_step(state, policy, 3, 1.0, 1.0, true);
  }
  judge_step(state, policy, 4, kNan, kNan, false);
  judge_step(state, policy, 5, kNan, kNan, false);
  try {
    judge_step(state, policy, 6, kNan, kNan, false);
    FAIL();
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("step 6: loss nan"), std::string::npos) << e.what();
    EXPECT_NE(std::string(e.what()).find("3 updates in a row"), std::string::npos) << e.what();
  }
}

TEST(UpdateGuard, KnowsASpikeOnceItKnowsWhatIsUsual) {
  GuardState state;
  const GuardPolicy policy{.loss_spike_factor = 3.0};
  EXPECT_EQ(judge_step(state, policy, 1, 2.0, 1.0, true), "");
  EXPECT_EQ(judge_step(state, policy, 2, 20.0, 1.0, true), "");  // too early
  state = {};
  for (int step = 1; step <= kGuardWarmup; ++step) EXPECT_EQ(judge_step(state, policy, step, 2.0, 1.0, true), "");
  EXPECT_EQ(judge_step(state, policy, 11, 5.9, 1.0, true), "");
  EXPECT_EQ(judge_step(state, policy, 12, 8.0, 1.0, true), "loss 8.0000 is more than 3 times the usual 2.1950");
  EXPECT_EQ(judge_step(state, {}, 12, 8.0, 1.0, true), "");  // off
}

TEST(UpdateGuard, GoesThroughACheckpoint) {
  GuardState state{3, 1, 20, 0.1 + 0.2};
  const GuardState back = guard_from_json(nlohmann::json::parse(to_json(state).dump()));
  EXPECT_EQ(back.skipped, 3);
  EXPECT_EQ(back.skipped_in_row, 1);
  EXPECT_EQ(back.good_steps, 20);
  EXPECT_EQ(back.usual_loss, 0.1 + 0.2);
}

}  // namespace
}  // namespace qft::train
