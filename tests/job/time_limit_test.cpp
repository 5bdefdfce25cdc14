#include "qft/job/stop_signal.h"

#include <gtest/gtest.h>

namespace qft::job {
namespace {

TEST(TimeLimit, WithoutALimitNothingIsReached) {
  EXPECT_FALSE(TimeLimit(0, std::nullopt, 1e9).reached(1e12));
}

TEST(TimeLimit, MaxHoursCountFromTheStart) {
  const TimeLimit limit(0.5, std::nullopt, 1000);
  EXPECT_FALSE(limit.reached(1000 + 1799));
  EXPECT_TRUE(limit.reached(1000 + 1800));
}

TEST(TimeLimit, AJobStopsAMinuteBeforeItsEndAndEarlierWhereStepsAreSlow) {
  TimeLimit limit(0, 10000, 0);
  EXPECT_FALSE(limit.reached(9939));
  EXPECT_TRUE(limit.reached(9940));
  limit.observe_step(20);
  limit.observe_step(5);
  limit.observe_save(100);
  EXPECT_DOUBLE_EQ(limit.margin(), 360);
  EXPECT_FALSE(limit.reached(9639));
  EXPECT_TRUE(limit.reached(9640));
}

}  // namespace
}  // namespace qft::job
