// JSON in prompts reads as Python's json.dumps(json.loads(text), ensure_ascii=False) writes it; the expected
// texts are Python's own.
#include "qft/core/error.h"

#include "python_json.h"
#include <gtest/gtest.h>

namespace {

using qft::data::dump_python_json;
using qft::data::parse_python_json;

std::string round_trip(std::string_view text, int indent = 0) {
  return dump_python_json(parse_python_json(text), indent);
}

TEST(PythonJson, SpacesOrderAndEscapes) {
  EXPECT_EQ(round_trip(R"({"b":[1,{"a":null}],"a":{},"c":[] , "t":true})"),
            R"({"b": [1, {"a": null}], "a": {}, "c": [], "t": true})");
  EXPECT_EQ(round_trip(R"("\u00fc\u007f\u0001\"\\\/\n\t\b\f\r\ud83d\ude42")"),
            "\"ü\x7f\\u0001\\\"\\\\/\\n\\t\\b\\f\\r🙂\"");
  EXPECT_EQ(round_trip(R"({"a":1,"b":2,"a":3})"), R"({"a": 3, "b": 2})");
}

TEST(PythonJson, Numbers) {
  EXPECT_EQ(
      round_trip("[1.0, -0.0, 0.1, 1e-7, 0.0001, 1e15, 1e16, 1.5e300, 123456789.5, 1E5, 1e22]"),
      "[1.0, -0.0, 0.1, 1e-07, 0.0001, 1000000000000000.0, 1e+16, 1.5e+300, 123456789.5, 100000.0, 1e+22]");
  EXPECT_EQ(
      round_trip("[0, -5, 18446744073709551615, 123456789012345678901234567890, -99999999999999999999]"),
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
            "{\n    \"a\": [\n        1,\n        2\n    ],\n    \"b\": {},\n    \"c\": {\n        \"d\": "
            "[]\n    }\n}");
}

TEST(PythonJson, BrokenTextIsAnError) {
  for (const char* text : {"", "{", "[1,]", "{\"a\" 1}", "1 2", "\"\xFF\"", "nul"})
    EXPECT_THROW(parse_python_json(text), qft::Error) << text;
}

}  // namespace
