// The interface for callers: texts, ranges, errors with their place, the names that a template reads.
// tests/interop/chat_templates.py compares the texts with Jinja2's.
#include "qft/jinja/template.h"

#include <string>

#include <gtest/gtest.h>

namespace qft::jinja {
namespace {

Json json(const char* text) {
  return parse_python_json(text, "variables");
}

std::string render(const std::string& source, const char* variables = "{}") {
  return Template::parse(source, "t").render(json(variables)).text;
}

std::string parse_error(const std::string& source) {
  try {
    static_cast<void>(Template::parse(source, "chat.jinja"));
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

std::string render_error(const std::string& source, const char* variables = "{}") {
  try {
    static_cast<void>(render(source, variables));
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(Template, RendersAConversation) {
  const char* source =
      "{% for m in messages %}\n"
      "  {% if loop.first and m.role != 'system' %}\n"
      "<s>\n"
      "  {% endif %}\n"
      "{{ m.role }}: {{ m['content'] | trim }}\n"
      "{% endfor %}\n"
      "{%- if add_generation_prompt %}assistant:{% endif %}\n";
  EXPECT_EQ(render(source, R"({"messages": [{"role": "user", "content": " é "}], "add_generation_prompt": true})"),
            "<s>\nuser: é\nassistant:");
}

TEST(Template, TellsTheBytesOfGenerationBlocks) {
  const Template parsed = Template::parse("é{% for x in list %}[{% generation %}{{ x }}{% endgeneration %}]{% endfor %}", "t");
  EXPECT_TRUE(parsed.has_generation());
  const Rendering rendering = parsed.render(json(R"({"list": ["ä", "bc"]})"));
  EXPECT_EQ(rendering.text, "é[ä][bc]");
  EXPECT_EQ(rendering.generated, (std::vector<ByteRange>{{3, 5}, {7, 9}}));
}

TEST(Template, KnowsNoPlaceOfAGenerationBlockInAMacro) {
  const Template parsed = Template::parse("{% macro m() %}{% generation %}x{% endgeneration %}{% endmacro %}a{{ m() }}", "t");
  EXPECT_FALSE(parsed.has_generation());
  const Rendering rendering = parsed.render(Json::object());
  EXPECT_EQ(rendering.text, "ax");
  EXPECT_TRUE(rendering.generated.empty());
}

TEST(Template, NamesTheVariablesThatItReads) {
  const Template parsed = Template::parse(
      "{% set a = b %}{{ a }}{% for m in messages %}{{ m }}{{ loop.index }}{{ range(1) }}{% endfor %}{% if c is defined %}{% set "
      "d = 1 %}{% endif %}{{ d }}",
      "t");
  EXPECT_EQ(parsed.variables(), (std::vector<std::string>{"b", "c", "d", "messages"}));
}

TEST(Template, TellsARefusalByItsOwnWords) {
  try {
    static_cast<void>(render("\n\n{{ raise_exception('roles must ' ~ 'alternate') }}"));
    FAIL() << "rendered";
  } catch (const TemplateRefusal& refusal) {
    EXPECT_EQ(refusal.message(), "roles must alternate");
    EXPECT_STREQ(refusal.what(), "t:3: the template refuses: roles must alternate");
  }
}

TEST(Template, NamesThePlaceOfASyntaxError) {
  EXPECT_EQ(parse_error("a\n{% if x %}\n"),
            "chat.jinja:2: the template ends in the 'if' of line 2, expected 'elif' or 'else' or 'endif'");
  EXPECT_EQ(parse_error("\n\n{{ a b }}"), "chat.jinja:3: found 'b', expected '}}'");
  EXPECT_EQ(parse_error("{{ x|nofilter }}"), "chat.jinja:1: unknown filter 'nofilter'");
  EXPECT_EQ(parse_error("{% include 'x' %}"), "chat.jinja:1: the statement 'include' is not implemented");
  EXPECT_EQ(parse_error("{{ x|random }}"), "chat.jinja:1: the filter 'random' is not implemented");
  EXPECT_EQ(parse_error("{% break %}"), "chat.jinja:1: 'break' outside a loop");
}

TEST(Template, NamesThePlaceOfAnErrorWhileRendering) {
  EXPECT_EQ(render_error("a\n{{ x.y.z }}", R"({"x": {}})"), "t:2: 'dict object' has no attribute 'y'");
  EXPECT_EQ(render_error("{{ x + 'a' }}"), "t:1: 'x' is undefined");
  EXPECT_EQ(render_error("{{ 'a' + 1 }}"), "t:1: '+' of str object and int object");
  EXPECT_EQ(render_error("{{ x.append(1) }}", R"({"x": []})"),
            "t:1: templates may not use the attribute 'append' of 'list object' (they cannot change values)");
}

TEST(Template, HasTheClockThatItIsGiven) {
  RenderOptions options;
  options.now.emplace();
  options.now->tm_year = 124;
  options.now->tm_mon = 6;
  options.now->tm_mday = 26;
  EXPECT_EQ(Template::parse("{{ strftime_now('%d %b %Y') }}", "t").render(Json::object(), options).text, "26 Jul 2024");
}

TEST(Template, KeepsNumbersThatNoMachineHas) {
  const char* variables = R"({"n": 123456789012345678901234567890, "x": NaN, "y": 18446744073709551615})";
  EXPECT_EQ(render("{{ n + 1 }} {{ x }} {{ y }} {{ [n, x]|tojson }}", variables),
            "123456789012345678901234567891 nan 18446744073709551615 [123456789012345678901234567890, NaN]");
}

TEST(Template, PrintsNoAddressInMemory) {
  EXPECT_EQ(render_error("{{ [1]|map('string') }}"), "t:1: generator object has no text: only an address in memory");
}

TEST(Template, NeedsAnObjectOfVariables) {
  EXPECT_THROW(Template::parse("a", "t").render(Json::array()), Error);
}

}  // namespace
}  // namespace qft::jinja
