#include "qft/core/json.h"

#include "qft/core/error.h"
#include "qft/core/file_ending.h"

#include <string>

#include <gtest/gtest.h>

namespace qft {

std::string refusal(const std::string& text) {
  try {
    parse_json(text, "'x.json'");
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

std::string nested(int depth) {
  return std::string(static_cast<std::size_t>(depth), '[') + "1" + std::string(static_cast<std::size_t>(depth), ']');
}

TEST(ParseJson, TakesJson) {
  EXPECT_EQ(parse_json(R"({"a": [1, 2.5, "\u00e9", null, true]})", "x").at("a").size(), 5u);
  EXPECT_EQ(parse_json(nested(kMaxJsonDepth), "x").dump(), nested(kMaxJsonDepth));
}

TEST(ParseJson, RefusesEverythingElseByName) {
  EXPECT_EQ(refusal(nested(kMaxJsonDepth + 1)), "'x.json' is nested more than 64 deep");
  EXPECT_EQ(refusal(std::string(10'000'000, '[')), "'x.json' is nested more than 64 deep");
  for (const std::string& text : {std::string(), std::string("{"), std::string("{} {}"), std::string("NaN"),
                                  std::string("\"\xff\""), std::string("1e999"), std::string("{a: 1}"), std::string("\0", 1)})
    EXPECT_TRUE(refusal(text).starts_with("'x.json' is not valid JSON: ")) << text << ": " << refusal(text);
}

TEST(ParseJson, SaysWhereAndWhyWithoutTheLibrarysOwnWords) {
  const std::pair<const char*, const char*> cases[] = {
      {"{\n\"a\": 1,\n}", "line 2, column 7: a comma before '}': remove it"},
      {"{\"\u00e9\": x}", "line 1, column 7: found 'x', expected a value: strings need double quotes"},
      {"", "line 1, column 1: the text is empty"},
      {"{\"a\": 1e999}", "number overflow parsing '1e999'"},
      {"{\"a\": 1 \"surrogate\": 2}",
       "line 1, column 9: found '\"surrogate\"', expected ',' or '}': is a comma or a quote missing?"},
      {"[1 2]", "line 1, column 4: found '2', expected ',' or ']': is a comma or a quote missing?"},
  };
  for (const auto& [text, message] : cases)
    EXPECT_EQ(refusal(text), std::string("'x.json' is not valid JSON: ") + message) << text;
}

TEST(ParseJson, ReadsNothingBeforeOrBehindBytesThatAreNoText) {
  for (const std::string& begin : {std::string(), std::string("{\"a\": ")}) {
    const std::string message = refusal(begin + std::string(500, '\x80'));
    EXPECT_LT(message.size(), 200u) << message;
  }
}

TEST(SingleKeys, AreRequiredWithTheLinesOfBoth) {
  const auto fault = [](const std::string& text) -> std::string {
    try {
      require_single_keys(text, "d.json");
    } catch (const Error& e) {
      return e.what();
    }
    return "";
  };
  EXPECT_EQ(fault("{\n\"a\": {\"b\": 1},\n\"c\": [\n{\"b\": 1,\n\"x\": 2,\n\"b\": 3}]}"),
            "d.json:6: the key 'b' appears twice in one object, first on line 4: remove one");
  EXPECT_EQ(fault("{\"a\": {\"a\": [{\"a\": 1}, {\"a\": 1}]}}"), "");
}

TEST(AsUtf8, ReplacesWhatNoJsonCanHold) {
  EXPECT_EQ(replace_invalid_utf8("donn\xE9"
                                 "es"),
            "donn\uFFFDes");
  EXPECT_EQ(replace_invalid_utf8("\u00e9\n"), "\u00e9\n");
}

TEST(FileKind, IsToldFromTheFirstBytes) {
  const auto contains = [](const std::string& text, std::string_view part) { return text.find(part) != text.npos; };
  EXPECT_TRUE(contains(describe_non_text("version https://git-lfs.github.com/spec/v1\n", "d/x.json"),
                       "'d/x.json' is a Git LFS pointer, not the file itself: run 'git lfs pull' in d"));
  EXPECT_TRUE(contains(describe_pointer("version https://git-lfs.github.com/spec/v1\n", "x.h5"), "'git lfs pull' in ."));
  EXPECT_TRUE(contains(describe_non_text("\xFF\xFE{", "x"), "is UTF-16"));
  EXPECT_TRUE(contains(describe_non_text(std::string_view("\0{", 2), "x"), "is UTF-16"));
  EXPECT_TRUE(contains(describe_non_text("\x1F\x8B\x08", "x"), "is compressed"));
  for (const char* text : {"", "{", "{}", "version: 1", "\xEF\xBB\xBF{"}) EXPECT_EQ(describe_non_text(text, "x"), "") << text;
  EXPECT_EQ(describe_pointer("\xFF\xFE", "x"), "");
}

}  // namespace qft
