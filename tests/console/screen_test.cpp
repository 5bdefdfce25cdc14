#include "console/screen.h"

#include <string>

#include <gtest/gtest.h>

namespace qft::console {
namespace {

TEST(Screen, RowsBreakAtTheTerminalsWidth) {
  const auto layout = lay_out("abcdefgh", 8, "> ", 6);
  ASSERT_EQ(layout.rows.size(), 2u);
  EXPECT_EQ(layout.rows[0].text, "> abcd");
  EXPECT_EQ(layout.rows[1].text, "efgh");
  EXPECT_EQ(layout.cursor_row, 1u);
  EXPECT_EQ(layout.left_of_cursor.text, "efgh");
}

TEST(Screen, CursorBehindAFullRowIsOnTheNext) {
  const auto layout = lay_out("abcd", 4, "> ", 6);
  ASSERT_EQ(layout.rows.size(), 2u);
  EXPECT_EQ(layout.cursor_row, 1u);
  EXPECT_EQ(layout.left_of_cursor.text, "");
}

TEST(Screen, WideCharacterIsNotCut) {
  const auto layout = lay_out("abc你d", 3, "> ", 6);
  EXPECT_EQ(layout.rows[0].text, "> abc");
  EXPECT_EQ(layout.rows[1].text, "你d");
  EXPECT_EQ(layout.cursor_row, 1u);
}

TEST(Screen, LinesStandBelowEachOther) {
  const auto layout = lay_out("one\ntwo", 1, "> ", 80);
  ASSERT_EQ(layout.rows.size(), 2u);
  EXPECT_EQ(layout.rows[1].text, "  two");
  EXPECT_EQ(layout.cursor_row, 0u);
  Screen screen;
  EXPECT_EQ(screen.draw(layout, {80, 24}), "\r\x1b[J> one\r\n  two\x1b[1A\r> o");
  EXPECT_EQ(screen.draw(lay_out("one\ntwo", 7, "> ", 80), {80, 24}), "\r\x1b[J> one\r\n  two\r  two");
  EXPECT_EQ(screen.draw(lay_out("", 0, "> ", 80), {80, 24}), "\x1b[1A\r\x1b[J> \r> ");
}

TEST(Screen, TextThatIsTooTallIsShownAroundTheCursor) {
  Screen screen;
  EXPECT_EQ(screen.draw(lay_out("a\nb\nc\nd", 7, "> ", 80), {80, 2}), "\r\x1b[J  c\r\n  d\r  d");
}

TEST(Screen, NarrowerTerminalIsReckonedWith) {
  Screen screen;
  screen.draw(lay_out("12345678\nx", 10, "> ", 20), {20, 24});
  EXPECT_TRUE(screen.draw(lay_out("12345678\nx", 10, "> ", 5), {5, 24}).starts_with("\x1b[2A\r"));
}

}  // namespace
}  // namespace qft::console
