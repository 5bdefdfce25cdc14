#include "console/edit_text.h"

#include "qft/console/printable.h"

#include <string>

#include <gtest/gtest.h>

namespace qft::console {
namespace {

EditText typed(const std::string& text) {
  EditText edit;
  edit.insert(text);
  return edit;
}

/// Returns the text with a bar at the cursor.
std::string seen(const EditText& edit) {
  return edit.text().substr(0, edit.cursor()) + "|" + edit.text().substr(edit.cursor());
}

TEST(Clusters, HaveTheColumnsOfATerminal) {
  EXPECT_EQ(cluster_at("a", 0).columns, 1);
  EXPECT_EQ(cluster_at("你好", 0).columns, 2);
  EXPECT_EQ(cluster_at("你好", 0).end, 3u);
  EXPECT_EQ(cluster_at("e\u0301x", 0).end, 3u) << "a letter and its accent";
  EXPECT_EQ(cluster_at("e\u0301x", 0).columns, 1);
  EXPECT_EQ(cluster_at("👩‍🚀x", 0).end, 11u) << "three code points, one picture";
  EXPECT_EQ(cluster_before("ab\n👩‍🚀", 14), 3u);
}

TEST(EditText, CursorMovesOverWholeCharacters) {
  auto edit = typed("a你e\u0301");
  edit.left();
  EXPECT_EQ(seen(edit), "a你|e\u0301");
  edit.left();
  EXPECT_EQ(seen(edit), "a|你e\u0301");
  edit.erase_right();
  EXPECT_EQ(seen(edit), "a|e\u0301");
  edit.right();
  edit.right();
  edit.erase_left();
  EXPECT_EQ(seen(edit), "a|");
  edit.home();
  edit.left();
  edit.erase_left();
  EXPECT_EQ(seen(edit), "|a");
}

TEST(EditText, WordsAreMovedOverAndErased) {
  auto edit = typed("one two-three, 四五");
  edit.word_left();
  EXPECT_EQ(seen(edit), "one two-three, |四五");
  edit.word_left();
  EXPECT_EQ(seen(edit), "one two-|three, 四五");
  edit.word_right();
  EXPECT_EQ(seen(edit), "one two-three|, 四五");
  edit.erase_word_left();
  EXPECT_EQ(seen(edit), "one two-|, 四五");
  edit.put_back();
  edit.erase_space_left();
  EXPECT_EQ(seen(edit), "one |, 四五");
  edit.erase_word_right();
  EXPECT_EQ(seen(edit), "one |");
  edit.put_back();
  EXPECT_EQ(seen(edit), "one , 四五|");
}

TEST(EditText, KeysOfALineStayInIt) {
  auto edit = typed("first line\nsec");
  edit.home();
  EXPECT_EQ(seen(edit), "first line\n|sec");
  EXPECT_TRUE(edit.up());
  EXPECT_FALSE(edit.up());
  edit.right();
  edit.erase_to_end();
  EXPECT_EQ(seen(edit), "f|\nsec");
  EXPECT_TRUE(edit.down());
  EXPECT_EQ(seen(edit), "f\ns|ec");
  EXPECT_FALSE(edit.down());
  edit.erase_to_home();
  EXPECT_EQ(seen(edit), "f\n|ec");
  edit.up();
  edit.end();
  edit.erase_to_end();
  EXPECT_EQ(seen(edit), "f|ec") << "at a line's end erases the line break";
}

TEST(EditText, LineAboveIsEnteredAtTheSameColumn) {
  auto edit = typed("你你你\nabc");
  edit.up();
  EXPECT_EQ(seen(edit), "你|你你\nabc") << "column 3 is inside the second one";
}

TEST(EditText, BackslashAtTheEndContinues) {
  auto edit = typed("one\\");
  edit.home();
  EXPECT_TRUE(edit.continue_line());
  EXPECT_EQ(seen(edit), "one\n|");
  auto two = typed("one\\\\");
  EXPECT_FALSE(two.continue_line());
  EXPECT_FALSE(typed("").continue_line());
  auto alone = typed("\\");
  EXPECT_TRUE(alone.continue_line());
}

}  // namespace
}  // namespace qft::console
