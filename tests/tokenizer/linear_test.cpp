// Encoding time grows linearly: twice the text takes about twice the time.
#include <algorithm>
#include <ctime>
#include <limits>

#include "fixture.h"

namespace qft::tokenizer {
namespace {

using nlohmann::json;

double thread_seconds() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

std::string repeated(std::string_view unit, std::size_t bytes) {
  std::string text;
  while (text.size() < bytes) text += unit;
  return text;
}

double seconds_to_encode(const Tokenizer& tokenizer, const std::string& text) {
  double best = std::numeric_limits<double>::max();
  for (int round = 0; round < 2; ++round) {
    std::vector<std::int32_t> ids;
    const double start = thread_seconds();
    tokenizer.encode(text, ids);
    best = std::min(best, thread_seconds() - start);
  }
  return best;
}

void expect_linear(const Tokenizer& tokenizer, std::string_view what) {
  constexpr std::size_t kBytes = 1 << 19;
  const std::pair<const char*, std::string> shapes[] = {{"a", ""},
                                                        {"ab", ""},
                                                        {" ", "x"},
                                                        {"\n", "x"},
                                                        {" \n", "x"},
                                                        {"=", ""},
                                                        {"7", ""},
                                                        {"\t", "\n"},
                                                        {"\u4E2D", ""},
                                                        {"e\u0345\u0316", ""},
                                                        {"'l", ""},
                                                        {"<|im_start", ""},
                                                        {"\u0345\u0316", ""},
                                                        {"\u1100\u1161\u11A8", ""},
                                                        {"\u200d\U0001F600", ""}};
  for (const auto& [unit, end] : shapes) {
    const double once = seconds_to_encode(tokenizer, repeated(unit, kBytes) + end);
    const double twice = seconds_to_encode(tokenizer, repeated(unit, 2 * kBytes) + end);
    EXPECT_LT(twice, 3 * once + 0.02) << what << ": " << testing::PrintToString(std::string(unit));
  }
}

TEST(Linear, AMegabyteInOneWordWithTheBuiltInPatterns) {
  expect_linear(*Tokenizer::load(tiny_dir()), "built in");
}

TEST(Linear, AMegabyteInOneWordWithPatternsOfTheRegexEngine) {
  // DeepSeek's three steps.
  const char* const patterns[] = {
      "\\p{N}{1,3}", "[\u4E00-\u9FA5\u3040-\u309F\u30A0-\u30FF]+",
      "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\\r\\n\\p{Lu}\\p{Ll}\\p{P}\\p{So}]?[A-Za-z]+| "
      "?[!-/]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"};
  const Changed changed([&](json& t, json&) {
    json steps = json::array();
    for (const char* pattern : patterns)
      steps.push_back({{"type", "Split"}, {"pattern", {{"Regex", pattern}}}, {"behavior", "Isolated"}, {"invert", false}});
    steps.push_back(t["pre_tokenizer"]["pretokenizers"].back());
    t["pre_tokenizer"]["pretokenizers"] = steps;
  });
  expect_linear(*changed.load(), "PCRE2");
}

}  // namespace
}  // namespace qft::tokenizer
