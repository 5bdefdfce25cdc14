#include "qft/device/threads.h"

#include "qft/core/error.h"

#include <cstdlib>

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

namespace qft::device {
namespace {

CpuShare share_of(int cores, int job_cpus, double quota = 0, int threads_per_core = 1) {
  CpuShare share;
  share.cores = cores;
  for (int cpu = 0; cpu < cores * threads_per_core; ++cpu) share.cpus.push_back(cpu);
  share.job_cpus = job_cpus;
  share.quota = quota;
  return share;
}

class Threads : public testing::Test {
 protected:
  void SetUp() override { unsetenv("OMP_NUM_THREADS"); }
  void TearDown() override { unsetenv("OMP_NUM_THREADS"); }
};

TEST_F(Threads, ThisProcessHasCores) {
  const auto share = cpu_share();
  EXPECT_FALSE(share.cpus.empty());
  EXPECT_GE(share.cores, 1);
  EXPECT_LE(share.cores, static_cast<int>(share.cpus.size()));
  EXPECT_GE(share.job_cpus, static_cast<int>(share.cpus.size()));
}

TEST_F(Threads, AloneTakesAllCores) {
  const auto plan = plan_threads(share_of(16, 32, 0, 2), 1, 1);
  EXPECT_EQ(plan.threads, 16);
  EXPECT_EQ(plan.reason, "16 cores");
  EXPECT_EQ(plan.advice, "");
}

TEST_F(Threads, UnboundRanksShareTheCores) {
  const auto plan = plan_threads(share_of(16, 16), 4, 4);
  EXPECT_EQ(plan.threads, 4);
  EXPECT_EQ(plan.reason, "16 cores / 4 ranks");
}

TEST_F(Threads, BoundRanksTakeTheirOwn) {
  EXPECT_EQ(plan_threads(share_of(8, 32), 1, 4).threads, 8);
  EXPECT_EQ(plan_threads(share_of(8, 32), 1, 4).advice, "");
}

TEST_F(Threads, TheVariableWins) {
  setenv("OMP_NUM_THREADS", "3", 1);
  const auto plan = plan_threads(share_of(16, 16), 2, 2);
  EXPECT_EQ(plan.threads, 3);
  EXPECT_EQ(plan.reason, "OMP_NUM_THREADS=3");
  EXPECT_EQ(plan.advice, "");
}

TEST_F(Threads, AdvisesAgainstTooManyThreads) {
  setenv("OMP_NUM_THREADS", "16", 1);
  const auto plan = plan_threads(share_of(16, 16), 4, 4);
  EXPECT_NE(plan.advice.find("set OMP_NUM_THREADS=4"), std::string::npos) << plan.advice;
}

TEST_F(Threads, AdvisesAgainstTooManyRanks) {
  const auto plan = plan_threads(share_of(2, 2), 4, 4);
  EXPECT_EQ(plan.threads, 1);
  EXPECT_EQ(plan.advice, "4 ranks share 2 cores: start fewer ranks per node");
}

TEST_F(Threads, AdvisesAgainstMpirunsBindingToOneCore) {
  const auto plan = plan_threads(share_of(1, 64), 1, 2);
  EXPECT_EQ(plan.threads, 1);
  EXPECT_NE(plan.advice.find("--bind-to none"), std::string::npos) << plan.advice;
}

TEST_F(Threads, AJobThatHasOneCpuIsBoundToAllOfIt) {
  EXPECT_EQ(plan_threads(share_of(1, 1), 1, 1).advice, "");
  EXPECT_EQ(plan_threads(share_of(1, 2), 1, 2).advice, "");
}

TEST_F(Threads, ACgroupQuotaLimits) {
  EXPECT_EQ(plan_threads(share_of(64, 64, 8), 1, 1).threads, 8);
  EXPECT_EQ(plan_threads(share_of(64, 64, 8), 4, 4).threads, 2);
  EXPECT_EQ(plan_threads(share_of(64, 64, 0.5), 1, 1).threads, 1);
}

TEST_F(Threads, AreGivenToLibTorch) {
  use_threads(2);
  EXPECT_EQ(at::get_num_threads(), 2);
  use_threads(1);
  EXPECT_EQ(at::get_num_threads(), 1);
  EXPECT_THROW(use_threads(0), Error);
}

TEST_F(Threads, MatmulPrecisionIsSetOrRefused) {
  set_matmul_precision("medium");
  EXPECT_EQ(at::globalContext().float32MatmulPrecision(), at::Float32MatmulPrecision::MEDIUM);
  set_matmul_precision("highest");
  EXPECT_EQ(at::globalContext().float32MatmulPrecision(), at::Float32MatmulPrecision::HIGHEST);
  EXPECT_THROW(set_matmul_precision("low"), ConfigError);
}

TEST(FormatCpuList, JoinsRuns) {
  EXPECT_EQ(format_cpu_list({0, 1, 2, 3, 8}), "0-3,8");
  EXPECT_EQ(format_cpu_list({}), "");
  EXPECT_EQ(format_cpu_list({5}), "5");
}

}  // namespace
}  // namespace qft::device
