#include "qft/loader/prefetch.h"

#include <atomic>
#include <chrono>
#include <stdexcept>
#include <thread>

#include <gtest/gtest.h>

namespace qft::loader {
namespace {

TEST(Prefetcher, GivesResultsInOrderAndThenNothing) {
  int n = 0;
  Prefetcher<int> prefetcher([&]() -> std::optional<int> { return n < 100 ? std::optional(n++) : std::nullopt; }, 3);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(prefetcher.next(), i);
  EXPECT_EQ(prefetcher.next(), std::nullopt);
  EXPECT_EQ(prefetcher.next(), std::nullopt);
}

TEST(Prefetcher, StaysWithinItsDepth) {
  std::atomic<int> made = 0;
  Prefetcher<int> prefetcher([&]() -> std::optional<int> { return made++; }, 2);
  for (int i = 0; i < 5; ++i) prefetcher.next();
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_LE(made, 5 + 2 + 1);  // one more may wait for room
}

TEST(Prefetcher, AnErrorArrivesAfterTheResultsBeforeIt) {
  int n = 0;
  Prefetcher<int> prefetcher(
      [&]() -> std::optional<int> {
        if (n == 2) throw std::runtime_error("broken");
        return n++;
      },
      8);
  EXPECT_EQ(prefetcher.next(), 0);
  EXPECT_EQ(prefetcher.next(), 1);
  EXPECT_THROW(prefetcher.next(), std::runtime_error);
  EXPECT_THROW(prefetcher.next(), std::runtime_error);
}

TEST(Prefetcher, StopsWhileItsProducerWaitsForRoom) {
  for (int i = 0; i < 50; ++i) Prefetcher<int>([]() -> std::optional<int> { return 1; }, 1).next();
}

}  // namespace
}  // namespace qft::loader
