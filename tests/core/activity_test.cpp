#include "qft/core/activity.h"

#include <thread>

#include <gtest/gtest.h>

namespace qft::activity {
namespace {

TEST(Activity, PhasesNest) {
  const Phase outer("train");
  const auto before = state().ticks;
  {
    const Phase inner("save");
    EXPECT_STREQ(state().phase, "save");
  }
  EXPECT_STREQ(state().phase, "train");
  EXPECT_GT(state().ticks, before);
}

TEST(Activity, OnlyTheOutermostWaitCounts) {
  const double before = waited_seconds();
  {
    const Waiting outer;
    EXPECT_EQ(state().waiting, Wait::ranks);
    {
      const Waiting inner;
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    EXPECT_EQ(state().waiting, Wait::ranks);
    EXPECT_EQ(waited_seconds(), before);
  }
  EXPECT_EQ(state().waiting, Wait::none);
  EXPECT_GE(waited_seconds() - before, 0.02);
}

TEST(Activity, StepsAddUpTimeAndWork) {
  EXPECT_EQ(state().step, -1);
  step_done(4, 0.5, 100.0);
  step_done(5, 0.25, 30.0);
  EXPECT_EQ(state().step, 5);
  EXPECT_EQ(state().busy_seconds, 0.75);
  EXPECT_EQ(state().work, 130.0);
}

TEST(Activity, TheFirstReasonToEndStays) {
  EXPECT_EQ(end_reason(), "");
  request_end("first");
  request_end("second");
  EXPECT_EQ(end_reason(), "first");
}

}  // namespace
}  // namespace qft::activity
