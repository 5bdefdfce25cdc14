#include "qft/core/units.h"

#include <cmath>

#include <gtest/gtest.h>

namespace qft {

TEST(Units, BytesAreDecimal) {
  EXPECT_EQ(format_bytes(0), "0 B");
  EXPECT_EQ(format_bytes(999), "999 B");
  EXPECT_EQ(format_bytes(1536), "1.54 kB");
  EXPECT_EQ(format_bytes(139.8e9), "139.80 GB");
  EXPECT_EQ(format_bytes(2e18), "2000.00 PB");
}

TEST(Units, Counts) {
  EXPECT_EQ(format_count(312), "312");
  EXPECT_EQ(format_count(139.35e6), "139.35 M");
}

TEST(Units, Durations) {
  EXPECT_EQ(format_duration(59.9), "00:59");
  EXPECT_EQ(format_duration(3723), "1:02:03");
  EXPECT_EQ(format_duration(-1), "-");
  EXPECT_EQ(format_duration(std::nan("")), "-");
}

TEST(Units, ANanHasNoSign) {
  EXPECT_FALSE(std::signbit(unsigned_nan(-std::nan(""))));
  EXPECT_TRUE(std::isnan(unsigned_nan(-std::nan(""))));
  EXPECT_EQ(unsigned_nan(-2.5), -2.5);
}

}  // namespace qft
