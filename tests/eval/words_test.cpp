#include "qft/core/error.h"
#include "qft/eval/word_cutter.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <initializer_list>
#include <string>
#include <vector>

#include "eval/dictionary.h"
#include "io/temp_dir.h"
#include <gtest/gtest.h>

namespace qft::eval {
namespace {

using Words = std::vector<std::u32string>;

/// Sets JIEBA_DICT during its lifetime.
class ScopedJiebaDict {
 public:
  explicit ScopedJiebaDict(const std::filesystem::path& file) { ::setenv("JIEBA_DICT", file.c_str(), 1); }
  ~ScopedJiebaDict() { ::unsetenv("JIEBA_DICT"); }
};

/// Writes a dictionary and a model in which 甲 begins words, 乙 ends them and every other character is a word.
std::filesystem::path make_jieba(const test::TempDir& dir, const std::string& dictionary) {
  const auto write = [&](const char* name, const std::string& text) { std::ofstream(dir / name) << text; };
  std::filesystem::create_directories(dir / "finalseg");
  write("dict.txt", dictionary);
  write("finalseg/prob_start.py", "P={'B': -1.0,\n 'E': -3.14e+100,\n 'M': -3.14e+100,\n 'S': -1.0}\n");
  write("finalseg/prob_trans.py",
        "P={'B': {'E': -1, 'M': -1}, 'E': {'B': -1, 'S': -1}, 'M': {'E': -1, 'M': -1}, 'S': {'B': -1, 'S': -1}}\n");
  write("finalseg/prob_emit.py",
        "from __future__ import x\n\nP={'B': {'\\u7532': -1.0}, 'E': {'\\u4e59': -1.0}, 'M': {}, "
        "'S': {'\\u4e19': -1.0, '\\u7532': -9.0}}\n");
  return dir / "dict.txt";
}

TEST(Words, WithoutHanCharactersNeedNoDictionary) {
  WordCutter cutter;
  EXPECT_EQ(cutter.cut(U"Costs rose 12.5% in v1.2.3-rc_4"),
            (Words{U"Costs", U" ", U"rose", U" ", U"12.5%", U" ", U"in", U" ", U"v1.2", U".", U"3", U"-", U"rc", U"_", U"4"}));
  EXPECT_EQ(cutter.cut(U"C++ AT&T x+=1..."), (Words{U"C++", U" ", U"AT&T", U" ", U"x", U"+", U"=", U"1", U"..."}));
  EXPECT_EQ(cutter.cut(U"naïve"), (Words{U"na", U"ï", U"ve"}));
  EXPECT_TRUE(cutter.cut(U"").empty());
  EXPECT_FALSE(cutter.lacked_dictionary());
}

TEST(Words, AreTheMostProbableOnesOfTheDictionary) {
  const test::TempDir dir;
  const ScopedJiebaDict named(make_jieba(dir, "天气 100 n\n今天 50 t\n今天天 1 x\n天 5\n气 5\nQwen2.5 9 nz\n"));
  WordCutter cutter;
  EXPECT_EQ(cutter.cut(U"今天天气3.5元。\r\n"), (Words{U"今天", U"天气", U"3.5", U"元", U"。", U"\r\n"}));
  EXPECT_EQ(cutter.cut(U"Qwen2.5 x"), (Words{U"Qwen2.5", U" ", U"x"}));  // a user's dictionary may have any words
}

TEST(Words, OfNoDictionaryFollowFromTheModel) {
  const test::TempDir dir;
  const ScopedJiebaDict named(make_jieba(dir, "天气 100 n\n丙甲 0\n"));
  WordCutter cutter;
  EXPECT_EQ(cutter.cut(U"丙甲乙天气甲乙"), (Words{U"丙", U"甲乙", U"天气", U"甲乙"}));
}

TEST(Words, OfTwoLinesForAWordTheLaterCounts) {
  const test::TempDir dir;
  std::ofstream(dir / "dict.txt") << "甲 1\n甲乙 1000\n乙 1\n甲乙 0\n";
  const Dictionary dictionary = Dictionary::read(dir / "dict.txt");
  EXPECT_FALSE(dictionary.contains(U"甲乙"));
  EXPECT_TRUE(dictionary.contains(U"甲"));
  std::vector<Dictionary::Match> matches;
  dictionary.matches(U"甲乙", matches);
  ASSERT_EQ(matches.size(), 1u);
  EXPECT_EQ(matches[0].length, 1u);
}

TEST(Words, WrongDictionariesAreNamed) {
  const test::TempDir dir;
  const auto message = [&](const auto& body) {
    try {
      body();
    } catch (const Error& e) {
      return std::string(e.what());
    }
    return std::string("no error");
  };
  const auto expect = [&](const std::string& text, std::initializer_list<const char*> words) {
    for (const char* word : words) EXPECT_NE(text.find(word), text.npos) << text << " lacks " << word;
  };
  {
    const ScopedJiebaDict named(dir / "absent.txt");
    expect(message([] { WordCutter(); }), {"JIEBA_DICT", "absent.txt"});
  }
  for (const char* line : {"天气", "天气 many", "天气 -3", ""}) {
    const ScopedJiebaDict named(make_jieba(dir, std::string("今天 1\n") + line + "\n气 1\n"));
    expect(message([] { WordCutter().cut(U"天气"); }), {"dict.txt", "line 2", "word frequency"});
  }
  const ScopedJiebaDict named(make_jieba(dir, "今天 1\n"));
  std::ofstream(dir / "finalseg/prob_emit.py") << "P={'B': {}}";
  expect(message([] { WordCutter().cut(U"今天"); }), {"finalseg", "B, E, M and S"});
}

}  // namespace
}  // namespace qft::eval
