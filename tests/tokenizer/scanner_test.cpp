// Compares the hand-written scanners with the regexes that they implement, and with the property tables.
#include "tokenizer/scanner.h"

#include <random>
#include <string>
#include <vector>

#include "tokenizer/pattern.h"
#include <gtest/gtest.h>

namespace qft::tokenizer {
namespace {

std::vector<std::string> words_of(ScannerKind kind, std::string_view text) {
  std::vector<std::string> words;
  scan(kind, text, [&](const char* begin, const char* end) { words.emplace_back(begin, end); });
  return words;
}

std::vector<std::string> matches_of(const Regex& regex, RegexScratch& scratch, std::string_view text) {
  std::vector<Piece> pieces;
  regex.cut(text, scratch, pieces);
  std::vector<std::string> words;
  for (const Piece& piece : pieces) words.emplace_back(text.substr(piece.begin, piece.end - piece.begin));
  return words;
}

/// One-character probes of the regex engine; false if its Unicode version classifies a code point differently.
class Probe {
 public:
  bool agrees(std::uint32_t code_point) {
    std::string text;
    append_utf8(code_point, text);
    const std::uint8_t cls = char_properties()[code_point] & kClassMask;
    return is(letter_, text) == (cls == kLetter) && is(number_, text) == (cls == kNumber) && is(mark_, text) == (cls == kMark) &&
           is(space_, text) == (cls >= kSpace);
  }

 private:
  bool is(const Regex& regex, std::string_view text) {
    std::vector<Piece> pieces;
    regex.cut(text, scratch_, pieces);
    return pieces.front().match;
  }
  RegexScratch scratch_;
  Regex letter_{"\\p{L}"}, number_{"\\p{N}"}, mark_{"\\p{M}"}, space_{"\\s"};
};

/// Returns every code point on whose class the regex engine agrees, in order.
const std::vector<std::uint32_t>& code_points() {
  static const std::vector<std::uint32_t> all = [] {
    Probe probe;
    std::vector<std::uint32_t> agreed;
    for (std::uint32_t c = 0; c < 0x110000; ++c)
      if ((c < 0xD800 || c > 0xDFFF) && probe.agrees(c)) agreed.push_back(c);
    return agreed;
  }();
  return all;
}

class Scanners : public testing::TestWithParam<ScannerKind> {};

TEST_P(Scanners, CutAsTheirPatternOnRandomTextOfAllBlocks) {
  const Regex regex{std::string(pattern_of(GetParam()))};
  RegexScratch scratch;
  std::mt19937 random(7);
  const auto pick = [&](std::size_t n) { return static_cast<std::size_t>(random() % n); };
  const std::string_view common[] = {" ",  "  ", "\n", "\r\n", "\t", "'s", "'LL", "'\xC5\xBF", "'re",    "a",
                                     "Zz", "1",  "23", ".",    "?!", "'",  "é",   "中",        "\u3000", "\u0301"};
  for (int round = 0; round < 60000; ++round) {
    const std::size_t base = pick(code_points().size());
    std::string text;
    for (std::size_t n = 1 + pick(14); n > 0; --n) {
      if (pick(5) < 3)
        text += common[pick(std::size(common))];
      else if (pick(2) == 0)
        append_utf8(code_points()[(base + pick(64)) % code_points().size()], text);
      else
        append_utf8(code_points()[pick(code_points().size())], text);
    }
    ASSERT_EQ(words_of(GetParam(), text), matches_of(regex, scratch, text)) << testing::PrintToString(text);
  }
}

TEST_P(Scanners, CutEveryCodePointAsTheirPattern) {
  const Regex regex{std::string(pattern_of(GetParam()))};
  RegexScratch scratch;
  for (const std::uint32_t c : code_points()) {
    std::string text = "x";
    append_utf8(c, text);
    text += "y ";
    append_utf8(c, text);
    append_utf8(c, text);
    text += "1";
    append_utf8(c, text);
    text += "\n";
    ASSERT_EQ(words_of(GetParam(), text), matches_of(regex, scratch, text)) << c;
  }
}

TEST_P(Scanners, AreFoundByTheExactPatternOnly) {
  const std::string pattern(pattern_of(GetParam()));
  EXPECT_EQ(scanner_for(pattern), GetParam());
  EXPECT_FALSE(scanner_for(pattern + "|x"));
}

INSTANTIATE_TEST_SUITE_P(All, Scanners,
                         testing::Values(ScannerKind::gpt2, ScannerKind::cl100k_digit, ScannerKind::cl100k_digits3,
                                         ScannerKind::cl100k_marks));

TEST(CharProperties, AgreeWithTheRegexEngineUpToItsUnicodeVersion) {
  // PCRE2 10.42 has Unicode 14, the tables have 16: some ten thousand letters are new, among 1.1 million.
  EXPECT_GT(code_points().size(), 0x110000u - 0x800 - 20000);
}

}  // namespace
}  // namespace qft::tokenizer
