#include "qft/core/json.h"

#include "qft/core/error.h"

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
  return std::string(static_cast<std::size_t>(depth), '[') + "1" +
         std::string(static_cast<std::size_t>(depth), ']');
}

TEST(ParseJson, TakesJson) {
  EXPECT_EQ(parse_json(R"({"a": [1, 2.5, "\u00e9", null, true]})", "x").at("a").size(), 5u);
  EXPECT_EQ(parse_json(nested(kMaxJsonDepth), "x").dump(), nested(kMaxJsonDepth));
}

TEST(ParseJson, RefusesEverythingElseByName) {
  EXPECT_EQ(refusal(nested(kMaxJsonDepth + 1)), "'x.json' is nested more than 64 deep");
  EXPECT_EQ(refusal(std::string(10'000'000, '[')), "'x.json' is nested more than 64 deep");
  for (const std::string& text :
       {std::string(), std::string("{"), std::string("{} {}"), std::string("NaN"), std::string("\"\xff\""),
        std::string("1e999"), std::string("{a: 1}"), std::string("\0", 1)})
    EXPECT_TRUE(refusal(text).starts_with("'x.json' is not valid JSON: ")) << text << ": " << refusal(text);
}

}  // namespace qft
