// Tests the watchdog's diagnoses of heartbeats.
#include "job/diagnosis.h"

#include <cstring>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

namespace qft::job {
namespace {

Watched rank(int number, bool waiting, const std::string& call, std::uint64_t count, double idle = 100, double silent = 1) {
  Watched w;
  w.beat.rank = number;
  w.beat.waiting = waiting ? activity::Wait::ranks : activity::Wait::none;
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
    r.beat.recent[0] = {
        .number = 6, .communicator = {'w', 'o', 'r', 'l', 'd'}, .kind = comm::OpKind::barrier, .dtype = DType::u8};
    r.beat.recent[1] = {
        .number = 7, .communicator = {'w', 'o', 'r', 'l', 'd'}, .kind = comm::OpKind::barrier, .dtype = DType::u8};
  }
  EXPECT_FALSE(diagnose_mismatch(ranks));
  ranks[1].beat.recent[1].kind = comm::OpKind::all_gather;
  ranks[1].beat.recent[1].count = 5;
  const std::string differ =
      "error: watchdog: the ranks call different collectives as number 7 on 'world': "
      "all_gather(U8, 5) on rank 1, barrier() on rank 0; the job ends";
  const auto report = diagnose_mismatch(ranks);
  ASSERT_TRUE(report);
  EXPECT_EQ(report->substr(0, report->find('\n')), differ);
  // A rank that only watches rank 0 leaves this to rank 0, until nothing moves.
  EXPECT_EQ(reason(ranks), "");
  for (auto& r : ranks) r.idle_seconds = 100;
  EXPECT_EQ(reason(ranks), differ);
}

TEST(Diagnosis, FinishedRanksAreMissedByThoseThatWait) {
  auto left = rank(1, false, "barrier()", 6);
  left.beat.finished = true;
  left.silent_seconds = 500;
  EXPECT_NE(reason({rank(0, true, "barrier()", 7), left}).find("rank 1 on n0 did not reach barrier() on 'world'"),
            std::string::npos);
  EXPECT_EQ(reason({left, left}), "");
}

TEST(Diagnosis, TheReportShowsEveryRank) {
  const auto text = diagnose(std::vector{rank(0, true, "barrier()", 7), rank(1, false, "send(F32, 3, to 0)", 6)}, 60);
  ASSERT_TRUE(text);
  EXPECT_NE(text->find("rank 0 on n0: phase train, waits in barrier() (number 7 on 'world')"), std::string::npos) << *text;
  EXPECT_NE(text->find("rank 1 on n0: phase train, last collective send(F32, 3, to 0)"), std::string::npos) << *text;
}

/// A rank that waits for its device. The device has finished all collectives of group `name` before number `next`.
constexpr int kGroup = 2;
Watched on_device(int number, const std::string& name, std::uint64_t called, std::uint64_t next, bool reached) {
  Watched w = rank(number, false, "", 0);
  w.beat.waiting = activity::Wait::device;
  comm::DeviceCollectives& d = w.beat.devices[0];
  d = {static_cast<std::uint64_t>(name[0]), called, reached ? next : next - 1, next - 1, kGroup, {}};
  if (called < next) return w;
  d.next = {.number = next, .count = 4, .kind = comm::OpKind::all_reduce, .dtype = DType::f32};
  std::strcpy(d.next.communicator.data(), name.c_str());
  return w;
}

constexpr const char* kCall = "all_reduce(sum, F32, 4), number 7 on 'shard'";

TEST(Diagnosis, ARankThatDidNotCallWhatTheOthersDevicesWaitInIsNamed) {
  EXPECT_EQ(reason({on_device(0, "shard", 9, 7, true), on_device(1, "shard", 6, 7, false), on_device(2, "shard", 8, 7, true)}),
            std::string("error: watchdog: rank 1 on n0 did not call ") + kCall +
                ", in which the devices of rank 0 on n0, rank 2 on n0 wait for 100 s; the job ends");
}

TEST(Diagnosis, ARankWhoseDeviceDoesNotComeToItIsNamed) {
  EXPECT_EQ(reason({on_device(0, "shard", 9, 7, true), on_device(1, "shard", 9, 7, false), on_device(2, "shard", 8, 7, true)}),
            std::string("error: watchdog: the device of rank 1 on n0 has not reached ") + kCall +
                ", in which the devices of rank 0 on n0, rank 2 on n0 wait for 100 s: earlier work does not end; the job ends");
}

TEST(Diagnosis, WhereAllDevicesAreInItNoRankIsBlamed) {
  EXPECT_NE(reason({on_device(0, "shard", 9, 7, true), on_device(1, "shard", 9, 7, true)})
                .find(std::string("the devices of all its ranks have been in ") + kCall),
            std::string::npos);
}

TEST(Diagnosis, ARankThatHasLeftTheGroupIsMissed) {
  auto left = on_device(1, "shard", 9, 7, true);
  left.beat.devices = {};
  EXPECT_NE(
      reason({on_device(0, "shard", 9, 7, true), left})
          .find(std::string("1 of its ranks left the group without ") + kCall + ", in which the device of rank 0 on n0 waits"),
      std::string::npos);
}

TEST(Diagnosis, WhoIsHeldUpInOneGroupIsNotBlamedInAnother) {
  // Rank 1 is late for 'all' because rank 2 does not reach the collective of their 'pair'.
  auto second = on_device(1, "pair", 3, 3, true);
  second.beat.devices[1] = on_device(1, "all", 7, 7, false).beat.devices[0];
  auto third = on_device(2, "pair", 2, 3, false);
  third.beat.devices[1] = on_device(2, "all", 6, 7, false).beat.devices[0];
  const std::string text = reason({on_device(0, "all", 7, 7, true), second, third});
  EXPECT_NE(text.find("rank 2 on n0 did not call"), std::string::npos) << text;
  EXPECT_EQ(text.find("rank 1 on n0 did not"), std::string::npos) << text;
  EXPECT_EQ(text.find("of rank 1 on n0 has not reached"), std::string::npos) << text;
}

TEST(Diagnosis, AFailureOfADeviceIsToldOnceTheRankHadTimeToEndByItself) {
  auto first = on_device(0, "shard", 9, 7, true), second = first;
  second.beat.rank = 1;
  first.failed_seconds = 3;
  second.failed_seconds = 5;
  std::strcpy(first.beat.failure.data(), "rank 1 has aborted");
  std::strcpy(second.beat.failure.data(), "the link is down");
  EXPECT_FALSE(diagnose_failure(std::vector{first, second}, 6));
  const auto text = diagnose_failure(std::vector{first, second}, 4);
  ASSERT_TRUE(text);
  EXPECT_NE(text->find("the collectives of rank 1 on n0's device have failed: the link is down"), std::string::npos) << *text;
  EXPECT_NE(text->find("rank 0 on n0: phase train, waits for its device"), std::string::npos) << *text;
  EXPECT_NE(text->find("its device is in all_reduce(sum, F32, 4) (number 7 on 'shard')"), std::string::npos) << *text;
}

/// The ranks after `step` steps, with the time and work of each so far.
std::vector<Watched> after(std::int64_t step, const std::vector<std::pair<double, double>>& seconds_and_work) {
  std::vector<Watched> ranks;
  for (std::size_t i = 0; i < seconds_and_work.size(); ++i) {
    ranks.push_back(rank(static_cast<int>(i), false, "", 0));
    ranks.back().beat.step = step;
    std::tie(ranks.back().beat.busy_seconds, ranks.back().beat.work) = seconds_and_work[i];
  }
  return ranks;
}

/// Returns the watch's texts for looks with these seconds and work per rank.
std::string watched(const std::vector<std::vector<std::pair<double, double>>>& looks) {
  StragglerWatch watch;
  std::vector<std::pair<double, double>> sums(looks.front().size());
  EXPECT_EQ(watch.observe(after(1, sums)), "");
  std::int64_t step = 1;
  std::string text;
  for (const auto& look : looks) {
    step += StragglerWatch::kSteps;
    for (std::size_t i = 0; i < sums.size(); ++i) sums[i].first += look[i].first, sums[i].second += look[i].second;
    text += watch.observe(after(step, sums));
  }
  return text;
}

TEST(StragglerWatch, NamesARankThatTakesThreeTimesAsLongTwice) {
  EXPECT_EQ(
      watched({{{10, 5}, {31, 5}, {10, 5}}, {{10, 5}, {31, 5}, {10, 5}}}),
      "rank 1 on n0 is 3.1 times as slow as the others: its part of a step takes 3.100 s, at their pace 1.000 s (median, for the "
      "same work, 10 steps)");
  EXPECT_EQ(watched({{{10, 5}, {31, 5}, {10, 5}}, {{10, 5}, {29, 5}, {10, 5}}, {{10, 5}, {31, 5}, {10, 5}}}), "") << "hiccups";
  EXPECT_EQ(watched({{{0.1, 5}, {1.0, 5}, {0.1, 5}}, {{0.1, 5}, {1.0, 5}, {0.1, 5}}}), "") << "milliseconds";
  const auto two = watched({{{90, 5}, {31, 5}, {10, 5}, {10, 5}, {10, 5}}, {{40, 5}, {31, 5}, {10, 5}, {10, 5}, {10, 5}}});
  EXPECT_NE(two.find("rank 0 on n0 is 4.0 times"), std::string::npos) << two;
  EXPECT_NE(two.find("; rank 1 on n0 is 3.1 times"), std::string::npos) << two;
}

TEST(StragglerWatch, ARankWithMoreToDoIsNotSlow) {
  EXPECT_EQ(watched({{{50, 500}, {10, 100}}, {{50, 500}, {10, 100}}}), "");
  EXPECT_EQ(watched({{{50, 100}, {0.1, 0}}, {{50, 100}, {0.1, 0}}}), "") << "nobody to compare with";
  const auto slow = watched({{{50, 500}, {200, 500}}, {{50, 500}, {200, 500}}});
  EXPECT_NE(slow.find("rank 1 on n0 is 4.0 times"), std::string::npos) << slow;
}

TEST(StragglerWatch, LittleWorkSaysNothingOfAPace) {
  EXPECT_EQ(watched({{{10, 100}, {3, 1}, {10, 100}}, {{10, 100}, {3, 1}, {10, 100}}}), "")
      << "gathers and updates take their time";
  EXPECT_EQ(watched({{{10, 100}, {3, 0}, {10, 100}}, {{10, 100}, {3, 0}, {10, 100}}}), "");
  EXPECT_NE(watched({{{10, 100}, {40, 0}, {10, 100}}, {{10, 100}, {40, 1}, {10, 100}}}), "")
      << "longer than the others take for everything";
}

TEST(StragglerWatch, ComparesOnceAllRanksHaveStepped) {
  StragglerWatch watch;
  std::string text;
  for (const std::int64_t step : {-1, 0, 5, 9, 10, 15, 19}) {
    const auto s = static_cast<double>(step);
    text += watch.observe(after(step, {{s, s}, {9 * s, s}}));
  }
  EXPECT_EQ(text, "");
  EXPECT_NE(watch.observe(after(20, {{20, 20}, {180, 20}})), "");
  EXPECT_EQ(watch.observe(after(40, {{40, 40}, {360, 40}, {0, 0}})), "") << "the number of ranks changed";
}

TEST(StragglerWatch, AnotherRunOfTheProcessCountsItsStepsAnew) {
  StragglerWatch watch;
  EXPECT_EQ(watch.observe(after(1, {{1, 1}, {9, 1}})) + watch.observe(after(40, {{40, 40}, {360, 40}})), "");
  std::string text;
  for (const std::int64_t step : {1, 2, 12, 22}) {
    const auto s = static_cast<double>(40 + step);
    text += watch.observe(after(step, {{s, s}, {9 * s, s}}));
  }
  EXPECT_NE(text.find("rank 1 on n0 is 9.0 times"), std::string::npos) << text;
}

TEST(StragglerWatch, NamesARankOnceInAWhile) {
  StragglerWatch watch;
  int times = 0;
  for (std::int64_t step = 0; step <= 450; step += 10) {
    const auto s = static_cast<double>(step);
    times += !watch.observe(after(step, {{s, s}, {9 * s, s}})).empty();
  }
  EXPECT_EQ(times, 3);
}

}  // namespace
}  // namespace qft::job
