// Operations that are started, several at once, and waited for later.
#include "qft/comm/communicator.h"
#include "qft/comm/session.h"
#include "qft/core/error.h"

#include <chrono>
#include <cstdint>
#include <exception>
#include <thread>
#include <vector>

#include "comm/ring.h"
#include "support/world.h"
#include <gtest/gtest.h>

namespace qft::comm {
namespace {

TEST(NonBlocking, ADefaultWorkIsComplete) {
  Work work;
  EXPECT_TRUE(work.test());
  work.wait();
  work.wait_host();
}

TEST(NonBlocking, SeveralOperationsOfDifferentKindsOverlap) {
  const auto n = static_cast<std::size_t>(world().size());
  const auto r = static_cast<std::size_t>(world().rank());
  constexpr std::size_t kCount = 50000;
  std::vector<double> a(kCount, 1.0);
  std::vector<float> b(kCount, static_cast<float>(r));
  std::vector<float> c(kCount * n);
  std::vector<std::int32_t> d(kCount * n, 2);
  std::vector<std::int32_t> e(kCount);
  std::vector<std::int64_t> f(3, static_cast<std::int64_t>(r));
  std::vector<Work> works;
  works.push_back(world().start_all_reduce(a.data(), a.size(), DType::f64));
  works.push_back(world().start_all_gather(b.data(), c.data(), b.size(), DType::f32));
  works.push_back(world().start_reduce_scatter(d.data(), e.data(), e.size(), DType::i32));
  works.push_back(world().start_broadcast(f.data(), f.size(), DType::i64, 0));
  std::int32_t blocking = 1;
  world().all_reduce(&blocking, 1, DType::i32);
  EXPECT_EQ(blocking, world().size());
  for (std::size_t i = works.size(); i-- > 0;) works[i].wait();
  for (const double v : a) ASSERT_EQ(v, static_cast<double>(n));
  for (std::size_t i = 0; i < c.size(); ++i) ASSERT_EQ(c[i], static_cast<float>(i / kCount));
  for (const auto v : e) ASSERT_EQ(v, static_cast<std::int32_t>(2 * n));
  for (const auto v : f) ASSERT_EQ(v, 0);
}

/// Gathers take turns; a gather that a thread waits for goes first.
TEST(NonBlocking, GathersMayBeWaitedForInAnyOrder) {
  const auto n = static_cast<std::size_t>(world().size());
  constexpr std::size_t kCount = std::size_t{3} << 20, kGathers = 6;
  const std::vector<float> own(kCount, static_cast<float>(world().rank()));
  std::vector<std::vector<float>> all(kGathers, std::vector<float>(kCount * n, -1.0F));
  std::vector<Work> works;
  for (auto& to : all) works.push_back(world().start_all_gather(own.data(), to.data(), kCount, DType::f32));
  std::vector<float> sum(kCount, 1.0F);
  world().all_reduce(sum.data(), kCount, DType::f32);
  for (const std::size_t i : {5U, 0U, 3U, 4U, 1U, 2U}) {
    works[i].wait();
    for (std::size_t r = 0; r < n; ++r) ASSERT_EQ(all[i][(r + 1) * kCount - 1], static_cast<float>(r));
  }
  EXPECT_EQ(sum.back(), static_cast<float>(n));
}

class Idle : public MpiWork {
  bool advance() override { return false; }
};

TEST(GatherTurns, FewSegmentsAreOpenAndTheEarliestGatherOpensThem) {
  GatherTurns turns;
  const Idle first, second;
  turns.join(&first);
  turns.join(&second);
  EXPECT_FALSE(turns.take(&second));
  std::size_t open = 0;
  while (open < 1000 && turns.take(&first)) ++open;
  EXPECT_LT(open, 1000U);
  turns.leave(&first);
  EXPECT_FALSE(turns.take(&second));
  turns.give_back(1);
  EXPECT_TRUE(turns.take(&second));
  EXPECT_FALSE(turns.take(&second));
}

TEST(GatherTurns, AFailureReachesThoseThatCannotFollow) {
  GatherTurns turns;
  const Idle first, second;
  turns.join(&first);
  turns.join(&second);
  turns.fail(&first, std::make_exception_ptr(Error("the wire is cut")));
  EXPECT_THROW(turns.take(&second), Error);
}

TEST(NonBlocking, AThousandSmallOnesKeepTheirOrder) {
  std::vector<std::int32_t> values(1000);
  std::vector<Work> works;
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = static_cast<std::int32_t>(i);
    works.push_back(world().start_all_reduce(&values[i], 1, DType::i32));
  }
  for (auto& work : works) work.wait();
  for (std::size_t i = 0; i < values.size(); ++i) ASSERT_EQ(values[i], static_cast<std::int32_t>(i) * world().size());
}

TEST(NonBlocking, ProgressNeedsNoCallFromThisThread) {
  if (world().size() == 1) GTEST_SKIP() << "needs 2 ranks";
  std::vector<float> data(std::size_t{6} << 20, 1.0F);
  Work work = world().start_all_reduce(data.data(), data.size(), DType::f32);
  // The thread sleeps; only the progress thread can move the data. test() is called once, at the end.
  std::this_thread::sleep_for(std::chrono::seconds(2));
  EXPECT_TRUE(work.test());
  EXPECT_EQ(data.back(), static_cast<float>(world().size()));
  world().barrier();
}

TEST(NonBlocking, DestructorWaits) {
  std::vector<float> data(100000, 1.0F);
  {
    const Work work = world().start_all_reduce(data.data(), data.size(), DType::f32);
  }
  EXPECT_EQ(data[99999], static_cast<float>(world().size()));
}

TEST(NonBlocking, AssignmentSwapsAndWaitsForTheOld) {
  std::vector<float> a(100000, 1.0F);
  std::vector<float> b(100000, 2.0F);
  Work work = world().start_all_reduce(a.data(), a.size(), DType::f32);
  work = world().start_all_reduce(b.data(), b.size(), DType::f32);
  work.wait();
  EXPECT_EQ(b[0], static_cast<float>(2 * world().size()));
  EXPECT_EQ(a[0], static_cast<float>(world().size()));
}

TEST(NonBlocking, ResultsAreTheSameBitsOnEveryRankAndInEveryRun) {
  for (const std::size_t count : {std::size_t{100}, std::size_t{60000}}) {
    std::vector<float> first;
    for (int run = 0; run < 3; ++run) {
      std::vector<float> data(count);
      for (std::size_t i = 0; i < count; ++i) {
        data[i] = 1.0F / static_cast<float>(3 + i % 17 + 5 * static_cast<std::size_t>(world().rank()));
      }
      world().all_reduce(data.data(), count, DType::f32);
      auto least = data;
      world().all_reduce(least.data(), count, DType::f32, ReduceOp::min);
      ASSERT_EQ(least, data);
      if (run == 0) first = data;
      ASSERT_EQ(first, data);
    }
  }
}

}  // namespace
}  // namespace qft::comm
