#include "qft/job/batch_job.h"

#include "qft/core/error.h"

#include <cstdlib>
#include <map>

#include <gtest/gtest.h>

namespace qft::job {
namespace {

constexpr double kNow = 1.7e9;

/// Only the batch systems' variables, in the time zone of the texts below.
class BatchJob : public ::testing::Test {
 protected:
  void SetUp() override {
    clear();
    setenv("TZ", "UTC", 1);
    tzset();
  }
  void TearDown() override { clear(); }

  JobEnd end(const std::string& text, const std::string& error = "") {
    return find_job_end(kNow, [&](const std::vector<std::string>& command) {
      asked_ = command;
      return CommandOutput{text, error};
    });
  }
  JobRun run(const std::string& text, const std::string& error = "") {
    return find_job_run([&](const std::vector<std::string>& command) {
      asked_ = command;
      return CommandOutput{text, error};
    });
  }
  std::vector<std::string> asked_;

 private:
  static void clear() {
    for (const char* v : {"QFT_JOB_END", "SLURM_JOB_END_TIME", "SLURM_JOB_ID", "SLURM_ARRAY_JOB_ID", "SLURM_ARRAY_TASK_ID",
                          "SLURM_RESTART_COUNT", "PBS_JOBID", "PBS_WALLTIME", "PBS_ENVIRONMENT"})
      unsetenv(v);
  }
};

TEST_F(BatchJob, OutsideOfOneNobodyIsAsked) {
  const JobEnd none = end("");
  EXPECT_FALSE(none.at);
  EXPECT_EQ(none.note, "");
  EXPECT_TRUE(asked_.empty());
}

TEST_F(BatchJob, TheEnvironmentIsBelievedFirst) {
  setenv("SLURM_JOB_ID", "7", 1);
  setenv("SLURM_JOB_END_TIME", "7200", 1);
  EXPECT_EQ(end("").at, 7200);
  setenv("QFT_JOB_END", "9000", 1);
  EXPECT_EQ(end("").at, 9000);
  EXPECT_TRUE(asked_.empty());
  for (const char* wrong : {"soon", "-1", "12 h", "inf"}) {
    setenv("QFT_JOB_END", wrong, 1);
    EXPECT_THROW(end(""), ConfigError) << wrong;
  }
}

TEST_F(BatchJob, OfSlurmIsAskedForItsEnd) {
  setenv("SLURM_JOB_ID", "42", 1);
  const JobEnd known =
      end("JobId=42 JobName=qft\n   EligibleTime=Unknown AccrueTime=Unknown\n"
          "   StartTime=2023-11-14T22:00:00 EndTime=2023-11-14T23:13:20 Deadline=N/A\n");
  EXPECT_EQ(known.at, kNow + 3600);
  EXPECT_EQ(known.note, "");
  EXPECT_EQ(asked_.back(), "42");
  EXPECT_NE(end("   StartTime=2023-11-14T22:00:00 EndTime=Unknown Deadline=N/A\n").note.find("no time limit"), std::string::npos);
}

TEST_F(BatchJob, OfAnArrayIsAskedForByItsTask) {
  setenv("SLURM_JOB_ID", "42", 1);
  setenv("SLURM_ARRAY_JOB_ID", "42", 1);
  setenv("SLURM_ARRAY_TASK_ID", "3", 1);
  EXPECT_EQ(end("   StartTime=2023-11-14T22:00:00 EndTime=2023-11-14T23:13:20 Deadline=N/A\n").at, kNow + 3600);
  EXPECT_EQ(asked_.back(), "42_3");
}

TEST_F(BatchJob, WhoseEndNobodyTellsIsNamedInANote) {
  setenv("SLURM_JOB_ID", "42", 1);
  for (const auto& [text, error] :
       std::map<std::string, std::string>{{"slurm_load_jobs error", ""}, {"", "scontrol did not answer in 10 s"}}) {
    const JobEnd unknown = end(text, error);
    EXPECT_FALSE(unknown.at);
    EXPECT_NE(unknown.note.find("job 42"), std::string::npos);
    EXPECT_NE(unknown.note.find("max_hours"), std::string::npos);
    EXPECT_NE(unknown.note.find(error), std::string::npos);
  }
}

TEST_F(BatchJob, WhoseNameIsAnOptionIsNotAskedFor) {
  setenv("SLURM_JOB_ID", "--help", 1);
  EXPECT_FALSE(end("EndTime=2023-11-14T23:13:20").at);
  EXPECT_TRUE(asked_.empty());
}

TEST_F(BatchJob, OfPbsCountsFromTheJobsStart) {
  setenv("PBS_JOBID", "12.server", 1);
  const std::string limit = "Job Id: 12.server\n    Resource_List.walltime = 01:00:00\n";
  EXPECT_EQ(end(limit + "    stime = Tue Nov 14 22:00:00 2023\n").at, kNow - 800 + 3600);
  EXPECT_EQ(end(limit + "    start_time = Tue Nov 14 22:00:00 2023\n").at, kNow - 800 + 3600);
  EXPECT_EQ(end(limit + "    resources_used.walltime = 00:05:00\n").at, kNow - 300 + 3600);
  const JobEnd guess = end(limit);
  EXPECT_EQ(guess.at, kNow + 3600);
  EXPECT_NE(guess.note.find("counted from now"), std::string::npos);
  EXPECT_EQ(asked_.back(), "12.server");
}

TEST_F(BatchJob, OfPbsWithoutQstat) {
  setenv("PBS_JOBID", "12.server", 1);
  const JobEnd unknown = end("", "qstat: No such file or directory");
  EXPECT_FALSE(unknown.at);
  EXPECT_NE(unknown.note.find("qstat: No such file"), std::string::npos);
  setenv("PBS_WALLTIME", "100", 1);  // Torque's
  EXPECT_EQ(end("", "qstat: No such file or directory").at, kNow + 100);
  EXPECT_EQ(end("    start_time = Tue Nov 14 22:00:00 2023\n").at, kNow - 800 + 100);
}

TEST_F(BatchJob, OfSlurmIsRequeuedOnlyWhereItsCountSaysSo) {
  EXPECT_FALSE(was_requeued(run(""), run("")));
  setenv("SLURM_JOB_ID", "42", 1);
  const JobRun first = run("");
  EXPECT_EQ(first.job, "42");
  EXPECT_FALSE(was_requeued(first, run(""))) << "started twice by hand in one allocation";
  setenv("SLURM_RESTART_COUNT", "1", 1);
  EXPECT_TRUE(was_requeued(first, run("")));
  EXPECT_FALSE(was_requeued(run(""), run("")));
  setenv("SLURM_JOB_ID", "43", 1);
  EXPECT_FALSE(was_requeued(first, run("")));
  EXPECT_TRUE(asked_.empty());
}

TEST_F(BatchJob, OfPbsIsAskedHowOftenItRan) {
  setenv("PBS_JOBID", "12.server", 1);
  setenv("PBS_ENVIRONMENT", "PBS_BATCH", 1);
  const JobRun first = run("Job Id: 12.server\n    run_count = 1\n");
  EXPECT_EQ(first.restarts, 0);
  EXPECT_EQ(asked_.back(), "12.server");
  EXPECT_FALSE(was_requeued(first, run("    run_count = 1\n")));
  EXPECT_TRUE(was_requeued(first, run("    run_count = 2\n")));
  EXPECT_TRUE(was_requeued(first, run("", "qstat: No such file or directory"))) << "unknown: existing checkpoints must stay";
  asked_.clear();
  setenv("PBS_ENVIRONMENT", "PBS_INTERACTIVE", 1);
  EXPECT_FALSE(was_requeued(run(""), run("")));
  EXPECT_TRUE(asked_.empty());
}

}  // namespace
}  // namespace qft::job
