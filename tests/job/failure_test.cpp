// Tests whole jobs that fail: exit code, text, and that they end.
#include "jobs.h"

namespace {

using namespace qft::job::test;

TEST(Failure, SuccessIsZero) {
  EXPECT_EQ(run("", 0).code, 0);
  EXPECT_EQ(run("", 3).code, 0);
}

TEST(Failure, TheSameErrorOnAllRanksIsPrintedOnce) {
  for (const int ranks : {0, 1, 3}) {
    const auto ending = run("config", ranks);
    EXPECT_EQ(ending.code, 2) << ending.output;
    EXPECT_EQ(count(ending.output, "error: key 'x' is not known\n"), 1) << ending.output;
    EXPECT_EQ(count(ending.output, "MPI_ABORT"), 0) << ending.output;
  }
  const auto runtime = run("runtime", 3);
  EXPECT_EQ(runtime.code, 1);
  EXPECT_EQ(count(runtime.output, "disk is full"), 1) << runtime.output;
}

TEST(Failure, DifferentErrorsNameTheirRanks) {
  const auto ending = run("two texts", 3);
  EXPECT_EQ(ending.code, 1);
  EXPECT_EQ(count(ending.output, "error on ranks 0-1: cannot read part 0\n"), 1) << ending.output;
  EXPECT_EQ(count(ending.output, "error on rank 2: cannot read part 1\n"), 1) << ending.output;
}

TEST(Failure, ExceptionsOfOthersAreReportedToo) {
  EXPECT_NE(run("memory", 2).output.find("out of host memory"), std::string::npos);
  EXPECT_NE(run("foreign", 2).output.find("error: from elsewhere"), std::string::npos);
  const auto unknown = run("unknown", 2);
  EXPECT_EQ(unknown.code, 1);
  EXPECT_NE(unknown.output.find("unknown type"), std::string::npos);
}

TEST(Failure, ReturnedCodesReachTheShell) {
  EXPECT_EQ(run("requeue", 0).code, 75);
  EXPECT_EQ(run("requeue", 3).code, 75);
  EXPECT_EQ(run("one returns 1", 3).code, 1);
}

TEST(Failure, OneRankThatFailsEndsTheJob) {
  const auto endings = run_together({"last, others in a collective", "first, others in a collective"}, 3);
  const auto &last = endings[0], &first = endings[1];
  EXPECT_EQ(last.code, 2) << last.output;
  EXPECT_EQ(count(last.output, "error on rank 2: only here\n"), 1) << last.output;
  EXPECT_LT(last.seconds, 20);
  EXPECT_EQ(first.code, 1) << first.output;
  EXPECT_EQ(count(first.output, "error on rank 0: only here\n"), 1) << first.output;
  EXPECT_LT(first.seconds, 20);
}

TEST(Failure, ARequestToStopBeforeTrainingPromisesNoCheckpoint) {
  const auto ending = run("asked to stop at the start", 2);
  EXPECT_EQ(ending.code, 75) << ending.output;
  EXPECT_EQ(count(ending.output, "SIGTERM: this run has not trained yet, so it ends without a checkpoint\n"), 1) << ending.output;
}

/// mpirun sends SIGTERM to the other ranks when one has failed.
TEST(Failure, ARequestToStopAfterAnErrorAddsNothing) {
  const auto ending = run("asked to stop after an error", 2);
  EXPECT_EQ(ending.code, 2) << ending.output;
  EXPECT_EQ(count(ending.output, "error on rank 0: only here\n"), 1) << ending.output;
  EXPECT_EQ(count(ending.output, "SIGTERM"), 0) << ending.output;
}

TEST(Failure, OneRankThatFailsWhileOthersReturnNeedsNoAbort) {
  const auto ending = run("last, others done", 3);
  EXPECT_EQ(ending.code, 2) << ending.output;
  EXPECT_EQ(count(ending.output, "error on rank 2: only here\n"), 1) << ending.output;
  EXPECT_EQ(count(ending.output, "MPI_ABORT"), 0) << ending.output;
}

TEST(Failure, AnOperationUnderWayDoesNotKeepTheJobAlive) {
  const auto endings = run_together({"with an operation under way", "with an operation that nobody else joins"}, 3);
  for (const Ending& ending : endings) {
    EXPECT_EQ(ending.code, 1) << ending.output;
    EXPECT_LT(ending.seconds, 20);
  }
  EXPECT_EQ(count(endings[0].output, "error on rank 2: while data moves"), 1) << endings[0].output;
  EXPECT_EQ(count(endings[1].output, "error on rank 2: alone"), 1) << endings[1].output;
}

TEST(Failure, AgreedErrorsEndAlikeAndAtOnce) {
  const auto ending = run("agreed", 3);
  EXPECT_EQ(ending.code, 2) << ending.output;
  EXPECT_EQ(count(ending.output, "error: on rank 2: cannot open 'y'\n"), 1) << ending.output;
  EXPECT_EQ(count(ending.output, "MPI_ABORT"), 0) << ending.output;
}

TEST(Watchdog, NamesARankInAnotherCollective) {
  const auto ending = run("two collectives", 3);
  expect_watched(ending, "broadcast(F32, 100, root 2) on rank 2");  // the others call a barrier, as far as rank 0 has heard
}

TEST(Watchdog, NamesARankThatDoesNotComeToACollective) {
  const auto endings = run_together({"skips one", "last computes for ever"}, 3);
  expect_watched(endings[0], "did not reach barrier() on 'world'");
  EXPECT_EQ(count(endings[0].output, "watchdog: rank 2 on "), 1) << endings[0].output;
  const Ending& computes = endings[1];
  expect_watched(computes, "did not reach barrier() on 'world', in which 2 others wait");
  EXPECT_NE(computes.output.find("rank 2 on "), std::string::npos) << computes.output;
  EXPECT_NE(computes.output.find("phase train"), std::string::npos) << computes.output;
}

TEST(Watchdog, NamesAStoppedRank) {
  const auto endings = run_together({"last is stopped", "first is stopped"}, 3);
  for (const Ending& ending : endings) expect_watched(ending, "shows no sign of life");
  EXPECT_EQ(count(endings[0].output, "watchdog: rank 2 on "), 1) << endings[0].output;
  EXPECT_EQ(count(endings[1].output, "watchdog: rank 0 on "), 1) << endings[1].output;
}

TEST(Watchdog, NamesARankThatDoesNotComeToItsStart) {
  expect_watched(run("last does not come", 3), "error: watchdog: rank 2 did not come to the start of the job within 2 s");
  expect_watched(run("first does not come", 3), "error: watchdog: rank 0 did not come to the start of the job within 2 s");
}

TEST(Watchdog, LongWorkWithSignsOfProgressIsFine) {
  const auto ending = run("long work", 3);
  EXPECT_EQ(ending.code, 0) << ending.output;
  EXPECT_EQ(ending.output, "");
}

TEST(Watchdog, NamesARankThatIsMuchSlower) {
  const auto warned = run("last is slow", 3);
  EXPECT_EQ(warned.code, 0) << warned.output;
  EXPECT_EQ(count(warned.output, "warning"), 1) << warned.output;
  EXPECT_NE(warned.output.find("at their pace 0.004 s (median"), std::string::npos) << warned.output;
  const auto ended = run("last is slow: stop", 3);
  EXPECT_EQ(ended.code, 1) << ended.output;
  EXPECT_NE(ended.output.find("error: rank 2 on "), std::string::npos) << ended.output;
}

}  // namespace
