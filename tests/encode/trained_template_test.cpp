// Templates as Jinja: literals, ends of answers, and equivalence. interop.written_templates checks the rendered texts.
#include "qft/encode/template_comparison.h"
#include "qft/encode/template_to_jinja.h"

#include <string>

#include <gtest/gtest.h>

namespace {

using namespace qft::encode;  // NOLINT: a test

TEST(EndOfAnswer, IsTheFirstMarkBehindTheText) {
  const auto end = [](const std::string& yaml, const std::string& eos) {
    return end_of_answer(parse_template("name: t\n" + yaml, "t"), eos);
  };
  EXPECT_EQ(end("", "</s>"), "</s>");
  EXPECT_EQ(end("assistant: \"{{content}}\\n<|a|>{{eos_token}}\"\nstop_words: [\"<|b|>\", \"<|a|>\"]\n", "</s>"), "<|a|>");
  EXPECT_EQ(end("assistant: \"{{content}}\\n\"\nefficient_eos: true\n", "</s>"), "</s>");
  EXPECT_EQ(end("assistant: \"{{content}}\\n\"\n", "</s>"), std::nullopt);
  EXPECT_EQ(end("", ""), std::nullopt);
}

TEST(TemplateToJinja, TextsAreLiteralsWhateverTheyHold) {
  const std::string text = to_jinja(parse_template("name: t\nuser: \"it's \\\\ {% x %} {{content}} }}\\n\"\n", "t"), {});
  EXPECT_NE(text.find(R"({{- 'it\'s \\ {% x %} ' -}}{{- content -}}{{- ' }}\n' -}})"), text.npos) << text;
}

TEST(RenderAlike, TwoTemplatesAreOneWhereAllProbesReadTheSame) {
  const std::string each = "{% for m in messages %}{{ m.role }}: {{ m.content }}{{ eos_token }}{% endfor %}";
  const std::string same = "{%- for m in messages %}{{ m['role'] ~ ': ' ~ m['content'] ~ eos_token }}{% endfor %}";
  EXPECT_TRUE(render_alike(each, same, {{"eos_token", "</s>"}}));
  EXPECT_FALSE(render_alike(each, each + "{{ tools }}"));
  EXPECT_FALSE(render_alike(each, "{% if tools %}{{ raise_exception('no tools') }}{% endif %}" + each));
  EXPECT_FALSE(render_alike(each, "{% for %}"));
  EXPECT_TRUE(render_alike("{% for %}", "{% for %}"));
}

}  // namespace
