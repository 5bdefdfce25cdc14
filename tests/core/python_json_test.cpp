// JSON in prompts must equal Python's json.dumps(json.loads(text), ensure_ascii=False); the expected texts come from Python.
#include "qft/core/python_json.h"

#include "qft/core/error.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

namespace {

using qft::dump_python_json;
using qft::parse_python_json;

std::string round_trip(std::string_view text, int indent = 0) {
  return dump_python_json(parse_python_json(text, "it"), indent);
}

TEST(PythonJson, SpacesOrderAndEscapes) {
  EXPECT_EQ(round_trip(R"({"b":[1,{"a":null}],"a":{},"c":[] , "t":true})"),
            R"({"b": [1, {"a": null}], "a": {}, "c": [], "t": true})");
  EXPECT_EQ(round_trip(R"("\u00fc\u007f\u0001\"\\\/\n\t\b\f\r\ud83d\ude42")"), "\"ü\x7f\\u0001\\\"\\\\/\\n\\t\\b\\f\\r🙂\"");
}

TEST(PythonJson, Numbers) {
  EXPECT_EQ(round_trip("[1.0, -0.0, 0.1, 1e-7, 0.0001, 1e15, 1e16, 1.5e300, 123456789.5, 1E5, 1e22]"),
            "[1.0, -0.0, 0.1, 1e-07, 0.0001, 1000000000000000.0, 1e+16, 1.5e+300, 123456789.5, 100000.0, 1e+22]");
  EXPECT_EQ(round_trip("[0, -5, 18446744073709551615, 123456789012345678901234567890, -99999999999999999999]"),
            "[0, -5, 18446744073709551615, 123456789012345678901234567890, -99999999999999999999]");
}

TEST(PythonJson, NumbersThatOnlyPythonHas) {
  EXPECT_EQ(round_trip("{\"a\":[NaN,-Infinity,Infinity,1e999,-1e999,1e-999],\"NaN\":\"NaN, Infinity\"}"),
            "{\"a\": [NaN, -Infinity, Infinity, Infinity, -Infinity, 0.0], \"NaN\": \"NaN, Infinity\"}");
  const std::string long_integer(400, '7');
  EXPECT_EQ(round_trip("[" + long_integer + "]"), "[" + long_integer + "]");
}

TEST(PythonJson, Indented) {
  EXPECT_EQ(round_trip(R"({"a":[1,2],"b":{},"c":{"d":[]}})", 4),
            "{\n    \"a\": [\n        1,\n        2\n    ],\n    \"b\": {},\n    \"c\": {\n        \"d\": []\n    }\n}");
}

std::string refusal(std::string_view text) {
  try {
    parse_python_json(text, "it");
  } catch (const qft::Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(PythonJson, BrokenTextIsAnErrorThatSaysWhereWhyAndTheWayOut) {
  const std::pair<const char*, const char*> cases[] = {
      {"", "byte 1: the text is empty"},
      {"{\"a\": [1", "byte 9: the text ends too early: a bracket, a brace or a quote is missing"},
      {"{\"a\": 1,}", "byte 8: a comma before '}': remove it"},
      {"[1, 2 ,\n ]", "byte 7: a comma before ']': remove it"},
      {"{\"a\": 1},", "byte 9: a comma after the record: remove it, or put all records into [ ]"},
      {"1 2", "byte 3: more text after the end"},
      {"{\"a\": None}", "byte 7: None is not JSON: write null"},
      {"[NaN, True]", "byte 7: True is not JSON: write true"},
      {"{'a': 1}", "byte 2: a single quote: JSON strings need double quotes"},
      {"{\"a\": 1 // one\n}", "byte 9: JSON has no comments: remove it"},
      {"{\"a\": \"x\ny\"}", "byte 9: a line break inside a string: write \\n"},
      {"\"\v\"", "byte 2: the byte 0x0B inside a string: write \\u000b"},
      {"\"\xFF\"", "byte 2: 0xFF is not UTF-8: convert the file"},
      {"\"a \\ud83d b\"", "byte 4: \\ud83d is one half of a surrogate pair, not a character: write both halves"},
      {"\"\\uD83D\\u0041\"", "byte 2: \\uD83D is one half"},
      {"\"\\ude00\"", "byte 2: \\ude00 is one half"},
      {"{\"a\" 1}", "byte 6: found '1', expected ':': is a quote missing?"},
      {"nul", "byte 4: the text ends too early"},
      {"[nul]", "byte 2: found 'nul', expected a value"},
  };
  for (const auto& [text, message] : cases)
    EXPECT_NE(refusal(text).find(std::string("it: invalid JSON at ") + message), std::string::npos) << text << "\n"
                                                                                                    << refusal(text) << "\n"
                                                                                                    << message;
}

TEST(PythonJson, AKeyTwiceInOneObjectIsRefusedWithBothValues) {
  EXPECT_EQ(refusal(R"({"a":1,"b":2,"a":3})"), "it: the key 'a' appears twice in one object, as 1 and as 3: remove one");
  EXPECT_EQ(refusal(R"({"x":[{"p":{}}, {"p":{"k":"old","m":0,"k":["new"]}}]})"),
            "it: the key 'k' appears twice in 'x[1].p', as \"old\" and as [\"new\"]: remove one");
  EXPECT_NE(refusal(R"({"\u0061":1,"a":1})").find("the key 'a' appears twice"),
            std::string::npos);  // compared after unescaping
  EXPECT_NE(refusal(R"([{"n": NaN, "n": 0}])").find("as NaN and as 0"), std::string::npos);
  std::string many = "{";
  for (int i = 0; i < 100'000; ++i) many += fmt::format("\"k{}\": {}, ", i, i);
  EXPECT_EQ(refusal(many + R"("last": 0})"), "no error");
  EXPECT_NE(refusal(many + R"("k7": "again", "k3": 0})").find("the key 'k7' appears twice in one object, as 7 and as \"again\""),
            std::string::npos);
  EXPECT_EQ(round_trip(R"({"a":{"a":{"a":[{"a":1},{"a":2}]}}})"), R"({"a": {"a": {"a": [{"a": 1}, {"a": 2}]}}})");
}

TEST(PythonJson, NestingThatTheStackCannotHoldIsRefused) {
  const auto nested = [](int depth, const char* open, const char* close) {
    std::string text;
    for (int i = 0; i < depth; ++i) text += open;
    text += '1';
    for (int i = 0; i < depth; ++i) text += close;
    return text;
  };
  const int deepest = qft::kMaxRecordDepth;
  EXPECT_GE(deepest, 1000);  // Python's json reads about as deep
  EXPECT_EQ(round_trip(nested(deepest, "[", "]")), nested(deepest, "[", "]"));
  EXPECT_FALSE(round_trip(nested(deepest, "{\"a\": ", "}"), 4).empty());
  for (const int depth : {deepest + 1, 200'000}) {
    EXPECT_EQ(refusal(nested(depth, "[", "]")), "it: nested more than 1024 deep");
    EXPECT_EQ(refusal(nested(depth, "{\"a\": ", "}")), "it: nested more than 1024 deep");
    EXPECT_EQ(refusal("[NaN, " + nested(depth, "[", "]") + "]"), "it: nested more than 1024 deep");
  }
}

}  // namespace
