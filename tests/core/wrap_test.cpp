#include "qft/core/units.h"

#include <gtest/gtest.h>

namespace qft {

TEST(Wrapped, BreaksAtBlanksAndIndents) {
  EXPECT_EQ(wrapped("one two three four", 2, 9), "one two\n  three\n  four");
  EXPECT_EQ(wrapped("key    words that go on", 7, 17), "key    words that\n       go on");
  EXPECT_EQ(wrapped("", 4, 10), "");
}

TEST(Wrapped, LeavesLongWordsWhole) {
  EXPECT_EQ(wrapped("a longer-than-the-line b", 2, 8), "a\n  longer-than-the-line\n  b");
}

TEST(Wrapped, HasNoBlanksAtTheEndsOfLines) {
  EXPECT_EQ(wrapped("one   two   ", 0, 5), "one\ntwo");
}

}  // namespace qft
