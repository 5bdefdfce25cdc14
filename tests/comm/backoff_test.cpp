// How long a waiting thread sleeps between two polls.
#include "comm/backoff.h"

#include <chrono>
#include <ctime>

#include "naps.h"
#include <gtest/gtest.h>

namespace qft::comm {
namespace {

using namespace std::chrono_literals;

TEST(Patience, WhatIsDoneSoonCostsNoNap) {
  constexpr int kWaits = 50;
  const long before = test::naps;
  for (int i = 0; i < kWaits; ++i) {
    int looks = 0;
    wait_until([&] { return ++looks > 1; });
    EXPECT_EQ(looks, 2);
  }
  EXPECT_LT(test::naps - before, kWaits / 5);  // a busy machine may delay one by a millisecond
}

TEST(Patience, ALongWaitLeavesTheProcessorToOthers) {
  const auto end = std::chrono::steady_clock::now() + 300ms;
  const std::clock_t before = std::clock();
  const long naps_before = test::naps;
  wait_until([&] { return std::chrono::steady_clock::now() > end; });
  EXPECT_GT(test::naps, naps_before);
  EXPECT_LT(std::chrono::steady_clock::now(), end + 200ms);
  EXPECT_LT(static_cast<double>(std::clock() - before) / CLOCKS_PER_SEC, 0.1);
}

}  // namespace
}  // namespace qft::comm
