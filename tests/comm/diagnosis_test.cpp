// What the watchdog makes of heartbeats.
#include "diagnosis.h"

#include <cstring>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace qft::comm {
namespace {

Watched rank(int number, bool waiting, const std::string& call, std::uint64_t count, double idle = 100, double silent = 1) {
  Watched w;
  w.beat.rank = number;
  w.beat.waiting = waiting;
  w.beat.number = count;
  std::strcpy(w.beat.host.data(), "n0");
  std::strcpy(w.beat.phase.data(), "train");
  std::strcpy(w.beat.communicator.data(), "world");
  std::strcpy(w.beat.call.data(), call.c_str());
  w.idle_seconds = idle;
  w.silent_seconds = silent;
  return w;
}

std::string reason(const std::vector<Watched>& ranks) {
  const auto text = diagnose(ranks, 60);
  return text ? text->substr(0, text->find('\n')) : "";
}

TEST(Diagnosis, AnyProgressIsWell) {
  EXPECT_EQ(reason({rank(0, true, "barrier()", 7), rank(1, false, "barrier()", 6, /*idle=*/59)}), "");
}

TEST(Diagnosis, ASilentRankIsNamedEvenIfOthersAreBusy) {
  EXPECT_EQ(reason({rank(0, false, "barrier()", 7, 0), rank(1, false, "barrier()", 7, 61, 61)}),
            "error: watchdog: rank 1 on n0 shows no sign of life for 61 s (stopped, or the node or its network is gone); "
            "the job ends");
}

TEST(Diagnosis, WhereAllIsStuckAFewMissingHeartbeatsName) {
  EXPECT_NE(reason({rank(0, true, "barrier()", 7), rank(1, true, "barrier()", 7, 100, 6)}).find("rank 1 on n0 shows no sign"),
            std::string::npos);
}

TEST(Diagnosis, TheMinorityIsNotWhereTheOthersAre) {
  EXPECT_NE(reason({rank(0, true, "barrier()", 7), rank(1, true, "all_reduce(sum, F32, 4)", 7), rank(2, true, "barrier()", 7)})
                .find("rank 1 on n0 is not where the others are"),
            std::string::npos);
  EXPECT_NE(reason({rank(0, true, "barrier()", 7), rank(1, true, "barrier()", 6)}).find("rank 1 on n0 is not where"),
            std::string::npos);
}

TEST(Diagnosis, TheFirstCollectiveThatDiffersIsNamed) {
  std::vector<Watched> ranks = {rank(0, true, "barrier()", 7, 0), rank(1, false, "barrier()", 8, 0)};
  for (auto& r : ranks) {
    r.beat.recent[0] = {.number = 6, .communicator = {'w', 'o', 'r', 'l', 'd'}, .kind = OpKind::barrier, .dtype = DType::u8};
    r.beat.recent[1] = {.number = 7, .communicator = {'w', 'o', 'r', 'l', 'd'}, .kind = OpKind::barrier, .dtype = DType::u8};
  }
  EXPECT_FALSE(diagnose_mismatch(ranks));
  ranks[1].beat.recent[1].kind = OpKind::all_gather;
  ranks[1].beat.recent[1].count = 5;
  const std::string differ = "error: watchdog: the ranks call different collectives as number 7 on 'world': "
                             "all_gather(U8, 5) on rank 1, barrier() on rank 0; the job ends";
  const auto report = diagnose_mismatch(ranks);
  ASSERT_TRUE(report);
  EXPECT_EQ(report->substr(0, report->find('\n')), differ);
  // A rank that watches rank 0 alone leaves that to it, until nothing moves.
  EXPECT_EQ(reason(ranks), "");
  for (auto& r : ranks) r.idle_seconds = 100;
  EXPECT_EQ(reason(ranks), differ);
}

TEST(Diagnosis, FinishedRanksAreMissedByThoseThatWait) {
  auto left = rank(1, false, "barrier()", 6);
  left.beat.finished = true;
  left.silent_seconds = 500;
  EXPECT_NE(reason({rank(0, true, "barrier()", 7), left}).find("rank 1 on n0 did not come to barrier() on 'world'"),
            std::string::npos);
  EXPECT_EQ(reason({left, left}), "");
}

TEST(Diagnosis, TheReportShowsEveryRank) {
  const auto text = diagnose(std::vector{rank(0, true, "barrier()", 7), rank(1, false, "send(F32, 3, to 0)", 6)}, 60);
  ASSERT_TRUE(text);
  EXPECT_NE(text->find("rank 0 on n0: phase train, waits in barrier() (number 7 on 'world')"), std::string::npos) << *text;
  EXPECT_NE(text->find("rank 1 on n0: phase train, last collective send(F32, 3, to 0)"), std::string::npos) << *text;
}

TEST(StragglerWatch, NeedsTwentyStepsOfThreeTimesTheOthers) {
  StragglerWatch watch;
  const auto at = [](std::int64_t step, double fast, double slow) {
    std::vector<Watched> ranks = {rank(0, false, "", 0), rank(1, false, "", 0), rank(2, false, "", 0)};
    for (auto& r : ranks) r.beat.step = step;
    ranks[0].beat.busy_seconds = ranks[2].beat.busy_seconds = fast;
    ranks[1].beat.busy_seconds = slow;
    return ranks;
  };
  EXPECT_EQ(watch.observe(at(-1, 0, 0)), "");
  EXPECT_EQ(watch.observe(at(1, 1, 9)), "");          // the first steps may be odd
  EXPECT_EQ(watch.observe(at(20, 20, 90)), "");       // 19 steps
  EXPECT_EQ(watch.observe(at(21, 21, 61)), "");       // 2.6 times
  EXPECT_EQ(watch.observe(at(41, 41.02, 61.1)), "");  // milliseconds
  EXPECT_EQ(watch.observe(at(61, 61.02, 122.1)),
            "rank 1 on n0 takes 3.050 s for its part of a step, the other ranks 1.000 s (median), for 20 steps and more");
}

}  // namespace
}  // namespace qft::comm
