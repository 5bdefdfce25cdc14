#include "qft/train/time_limit.h"

#include "qft/core/error.h"

#include <cstdlib>

#include <gtest/gtest.h>

namespace qft::train {
namespace {

TEST(TimeLimit, WithoutALimitNothingIsReached) { EXPECT_FALSE(TimeLimit(0, std::nullopt, 1e9).reached(1e12)); }

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

TEST(TimeLimit, TheBatchSystemsVariables) {
  unsetenv("SLURM_JOB_END_TIME");
  unsetenv("PBS_WALLTIME");
  EXPECT_FALSE(job_end(50));
  setenv("PBS_WALLTIME", "100", 1);
  EXPECT_EQ(job_end(50), 150);
  setenv("SLURM_JOB_END_TIME", "7200", 1);
  EXPECT_EQ(job_end(50), 7200);
  setenv("SLURM_JOB_END_TIME", "soon", 1);
  EXPECT_THROW(job_end(50), ConfigError);
  unsetenv("SLURM_JOB_END_TIME");
  unsetenv("PBS_WALLTIME");
}

}  // namespace
}  // namespace qft::train
