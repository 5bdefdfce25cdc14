#include "qft/core/error.h"
#include "qft/core/thread.h"

#include <atomic>
#include <thread>

#include <gtest/gtest.h>

namespace qft {
namespace {

TEST(Workers, EachRunsOnceAndTheFirstHere) {
  std::atomic<unsigned> seen{0};
  const auto here = std::this_thread::get_id();
  run_workers(5, [&](int worker) {
    seen += 1U << (4 * worker);
    EXPECT_EQ(worker == 0, std::this_thread::get_id() == here);
  });
  EXPECT_EQ(seen, 0x11111U);
}

TEST(Workers, TheErrorOfTheLowestNumberIsThrownWhenAllHaveReturned) {
  std::atomic<int> returned{0};
  try {
    run_workers(4, [&](int worker) {
      if (worker >= 2) fail("worker {}", worker);
      ++returned;
    });
    FAIL() << "nothing was thrown";
  } catch (const Error& e) {
    EXPECT_STREQ(e.what(), "worker 2");
  }
  EXPECT_EQ(returned, 2);
}

}  // namespace
}  // namespace qft
