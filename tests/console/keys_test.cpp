#include "console/keys.h"

#include "qft/console/printable.h"
#include "qft/console/terminal.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace qft::console {
namespace {

/// Returns the keys in a terminal's input.
std::vector<Press> presses_of(const std::string& sent) {
  std::size_t at = 0;
  KeyReader reader([&](int) { return at < sent.size() ? static_cast<unsigned char>(sent[at++]) : int{Terminal::kClosed}; });
  std::vector<Press> presses;
  for (Press press = reader.next(); press.key != Key::closed; press = reader.next()) presses.push_back(press);
  return presses;
}

std::vector<Key> keys_of(const std::string& sent) {
  std::vector<Key> keys;
  for (const auto& press : presses_of(sent)) keys.push_back(press.key);
  return keys;
}

TEST(Keys, ArrowsOfAllTerminalsAreKnown) {
  const std::vector<Key> arrows = {Key::up, Key::down, Key::right, Key::left};
  EXPECT_EQ(keys_of("\x1b[A\x1b[B\x1b[C\x1b[D"), arrows);
  EXPECT_EQ(keys_of("\x1bOA\x1bOB\x1bOC\x1bOD"), arrows);
  EXPECT_EQ(keys_of("\x1b[H\x1b[F\x1b[1~\x1b[4~\x1b[3~"),
            (std::vector{Key::home, Key::end, Key::home, Key::end, Key::erase_right}));
  EXPECT_EQ(keys_of("\x1b[1;5D\x1b[1;3C\x1b"
                    "b\x1b"
                    "f"),
            (std::vector{Key::word_left, Key::word_right, Key::word_left, Key::word_right}));
  EXPECT_EQ(keys_of("\x1b\r\x1b[13;2u\r\n"), (std::vector{Key::new_line, Key::new_line, Key::enter, Key::enter}));
}

TEST(Keys, UnknownSequencesBecomeNoText) {
  for (const auto& press : presses_of("\x1b[15;2~\x1b[[A\x1bOP\x1b[<0;1;1M\x1bx\x07\xff")) EXPECT_EQ(press.text, "");
}

TEST(Keys, CharacterIsOnePress) {
  const auto presses = presses_of("a你👩");
  ASSERT_EQ(presses.size(), 3u);
  EXPECT_EQ(presses[1].text, "你");
  EXPECT_EQ(presses[2].text, "👩");
}

TEST(Keys, PasteIsOneTextWithoutControls) {
  const auto presses = presses_of("\x1b[200~one\r\ntwo\rthree\n\tfour\x1b[31m\xff\x1b[201~x");
  ASSERT_EQ(presses.size(), 2u);
  EXPECT_EQ(presses[0].key, Key::paste);
  EXPECT_EQ(presses[0].text, "one\ntwo\nthree\n\tfour[31m");
  EXPECT_EQ(presses[1].text, "x");
}

TEST(Printable, TextCannotChangeATerminal) {
  EXPECT_EQ(printable("a\x1b[31mb\r\n\tc\x7f\u009b2Jd\xff你"), "a[31mb\n\tc2Jd你");
}

}  // namespace
}  // namespace qft::console
