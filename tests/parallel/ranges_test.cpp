#include "qft/parallel/ranges.h"

#include <random>

#include <gtest/gtest.h>

namespace qft::parallel {
namespace {

constexpr std::int64_t kEnd = 40;

/// Returns the ranges of the set elements.
Ranges of(const std::vector<bool>& elements) {
  Ranges ranges;
  for (std::int64_t i = 0; i < kEnd; ++i)
    if (elements[static_cast<std::size_t>(i)]) append(ranges, {i, i + 1});
  return ranges;
}

TEST(Ranges, AreSetsOfElements) {
  std::mt19937 random(1);
  for (int trial = 0; trial < 2000; ++trial) {
    std::vector<bool> a(kEnd), b(kEnd), both(kEnd), without(kEnd), window(kEnd);
    const std::int64_t begin = random() % kEnd, end = begin + random() % kEnd;
    const unsigned density = random() % 5 + 1;
    for (std::size_t i = 0; i < a.size(); ++i) {
      a[i] = random() % density == 0;
      b[i] = random() % 3 == 0;
      both[i] = a[i] || b[i];
      without[i] = a[i] && !b[i];
      window[i] = a[i] && std::cmp_greater_equal(i, begin) && std::cmp_less(i, end);
    }
    ASSERT_EQ(united(of(a), of(b)), of(both));
    ASSERT_EQ(difference(of(a), of(b)), of(without));
    ASSERT_EQ(within(of(a), {begin, end}), of(window));
    ASSERT_EQ(size_of(of(a)), std::count(a.begin(), a.end(), true));
  }
}

}  // namespace
}  // namespace qft::parallel
