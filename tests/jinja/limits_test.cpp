// Templates that would not end or would use all memory: each stops with an error that names its limit.
#include "qft/jinja/template.h"

#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

namespace qft::jinja {
namespace {

std::string error_of(const std::string& source, const Limits& limits = {}) {
  RenderOptions options;
  options.limits = limits;
  try {
    static_cast<void>(Template::parse(source, "t").render(Json::object(), options));
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

bool says(const std::string& error, const std::string& words) {
  return error.find(words) != std::string::npos;
}

TEST(Limits, StepsEndALoopThatDoesNot) {
  Limits limits;
  limits.steps = 100'000;
  const std::string error = error_of("\n{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}", limits);
  EXPECT_TRUE(says(error, "t:2: more than 100000 steps")) << error;
}

TEST(Limits, DepthEndsARecursion) {
  EXPECT_TRUE(says(error_of("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}"), "depth"));
  EXPECT_TRUE(says(error_of("{% for x in [[1]] recursive %}{{ loop([[1]]) }}{% endfor %}"), "depth"));
  EXPECT_TRUE(
      says(error_of("{% set ns = namespace(x=[]) %}{% for i in range(5000) %}{% set ns.x = [ns.x] %}{% endfor %}{{ ns.x }}"),
           "depth"));
  EXPECT_TRUE(says(error_of("{% set ns = namespace(x='a') %}{% for i in range(5000) %}{% set ns.x = ns.x|map('upper') %}{% "
                            "endfor %}{{ ns.x|first }}"),
                   "depth"));
}

TEST(Limits, MemoryEndsTextsAndListsThatGrow) {
  Limits limits;
  limits.memory_bytes = 1 << 20;
  for (const char* source : {"{% set ns = namespace(t='ab') %}{% for i in range(60) %}{% set ns.t = ns.t ~ ns.t %}{% endfor %}",
                             "{{ 'a' * 999999999999 }}", "{{ [1] * 999999999 }}", "{{ 'a'.center(99999999999) }}",
                             "{% set ns = namespace(t=[1]) %}{% for i in range(60) %}{% set ns.t = ns.t + ns.t %}{% endfor %}"}) {
    const std::string error = error_of(source, limits);
    EXPECT_TRUE(says(error, "(the limit)")) << source << ": " << error;
  }
}

TEST(Limits, OutputEndsATextThatIsTooLong) {
  Limits limits;
  limits.output_bytes = 1000;
  EXPECT_TRUE(says(error_of("{% for i in range(500) %}abc{% endfor %}", limits), "more than 1000 bytes (the limit)"));
}

TEST(Limits, NumbersHaveABound) {
  EXPECT_TRUE(says(error_of("{{ 9 ** 99999999 }}"), "too many digits"));
  EXPECT_TRUE(says(error_of("{{ 9 ** 99999 }}"), "(the limit)"));
  EXPECT_TRUE(says(error_of("{{ range(100001) }}"), "limit is 100000"));
  EXPECT_TRUE(says(error_of("{{ '%999999999d' % 1 }}"), "(the limit)"));
}

TEST(Limits, NestingHasABoundWhenParsed) {
  EXPECT_TRUE(says(error_of("{{ " + std::string(500, '(') + "1" + std::string(500, ')') + " }}"), "nested more than 100 deep"));
  std::string nots = "{{ ", sum = "{{ 1";
  for (int i = 0; i < 100'000; ++i) nots += "not ";
  for (int i = 0; i < 100'000; ++i) sum += " + 1";
  EXPECT_TRUE(says(error_of(nots + "1 }}"), "nested more than 100 deep"));
  EXPECT_TRUE(says(error_of(sum + " }}"), "more than 400 nested operators"));
}

TEST(Limits, CyclesEndWithTheirRendering) {
  for (const char* source :
       {"{% set ns = namespace() %}{% set ns.a = [ns] %}{% set ns.b = {'k': ns} %}{% macro m() %}{{ m }}{% endmacro %}{% set "
        "ns.m = m %}",
        "{% set ns = namespace() %}{% for x in [1, 2] %}{% set ns.loop = loop %}{% set ns.f = [ns]|map('list') %}{% endfor %}",
        "{% set ns = namespace(t=1) %}{% set ns.g = [ns]|select|batch(2) %}{% set ns.u = [ns]|unique %}{{ ns.g|first|length }}{{ "
        "1/0 }}"})
    static_cast<void>(error_of(source));
}

TEST(Limits, ManyThreadsRenderOneTemplate) {
  const Template shared = Template::parse(
      "{% set ns = namespace(n=0) %}{% for x in list %}{% set ns.n = ns.n + x %}{{ 'a' ~ x }}{% endfor %}{{ ns.n }}", "t");
  const Json variables = parse_python_json(R"({"list": [1, 2, 3, 4]})", "v");
  const std::string expected = shared.render(variables).text;
  EXPECT_EQ(expected, "a1a2a3a410");
  std::vector<int> wrong(4, 0);
  std::vector<std::thread> threads;
  for (int& count : wrong)
    threads.emplace_back([&] {
      for (int i = 0; i < 500; ++i) count += shared.render(variables).text == expected ? 0 : 1;
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, std::vector<int>(4, 0));
}

}  // namespace
}  // namespace qft::jinja
