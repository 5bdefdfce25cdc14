// The chat template that comes with a model: conversations as it renders them, and what of them is learned.
#include "qft/core/error.h"
#include "qft/encode/chat_template.h"
#include "qft/encode/template_comparison.h"

#include "encode/tool_calls.h"
#include "fixture.h"

namespace {

using namespace qft::encode;  // NOLINT: a test
using qft::ConfigError;
using qft::Error;
using qft::Json;
using qft::test::expect_error;
using qft::test::SmallRun;
using qft::test::TempFolder;
using qft::tokenizer::Tokenizer;

// As Qwen's: thoughts of answers before the last question are left out, and the last answer has a thought, if only an empty one.
constexpr const char* kReasoning = R"({%- if tools %}[{% for t in tools %}{{ t.function.name }}{% endfor %}]{% endif %}
{%- set ns = namespace(last=-1) %}
{%- for m in messages %}{% if m.role == 'user' %}{% set ns.last = loop.index0 %}{% endif %}{% endfor %}
{%- for m in messages %}
{%- if m.role == 'assistant' %}
{%- set thought = m.reasoning_content if m.reasoning_content is defined else '' %}
{{- '<|im_start|>a:' }}
{%- if loop.index0 > ns.last and (loop.last or thought) %}{{ '<think>' + thought + '</think>' }}{% endif %}
{{- m.content }}
{%- for c in m.tool_calls or [] %}{{ '(' + c.function.name + c.function.arguments|tojson + ')' }}{% endfor %}
{{- '<|im_end|>;' }}
{%- else %}{{ '<|im_start|>' + m.role[0] + ':' + m.content + '<|im_end|>;' }}{% endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>a:' }}{% if enable_thinking is defined and not enable_thinking %}<think></think>{% endif %}{% endif %})";

constexpr const char* kGenerating =
    R"({% for m in messages %}{% if m.role == 'assistant' %}A {% generation %}{{ m.content }}<|im_end|>{% endgeneration %};
{%- else %}U {{ m.content }};{% endif %}{% endfor %}{% if add_generation_prompt %}A {% endif %})";

struct Own {
  TempFolder folder;
  std::shared_ptr<const Tokenizer> tokenizer;
  Own() {
    qft::test::write_byte_tokenizer(folder);
    tokenizer = Tokenizer::load(folder.path());
  }
  ChatTemplate bind(const std::string& text, const TemplateOptions& options = no_thinking_given()) const {
    return ChatTemplate({text, "", "t.jinja"}, folder.path(), tokenizer, options);
  }
  static TemplateOptions no_thinking_given() {
    TemplateOptions options;
    options.enable_thinking.reset();
    return options;
  }
  /// Samples as texts, with what is learned in [[ ]].
  std::vector<std::string> samples(const ChatTemplate& chat, const Conversation& c, const AnswerChoice& choice = {}) const {
    std::vector<std::string> texts;
    for (const TrainingSample& sample : chat.training_samples(c, choice)) {
      std::string& text = texts.emplace_back();
      for (const Turn& turn : sample) text += tokenizer->decode(turn.source) + "[[" + tokenizer->decode(turn.target) + "]]";
    }
    return texts;
  }
};

Conversation two_turns() {
  Conversation c;
  c.prompt = {{Role::user, "q0"}, {Role::assistant, "a0"}, {Role::user, "q1"}};
  c.responses = {{Role::assistant, "a1"}};
  return c;
}

Message with_thought(std::string text, std::string thought) {
  Message m{Role::assistant, std::move(text)};
  m.thought = std::move(thought);
  return m;
}

TEST(OwnTemplate, LearnsTheDifferenceThatEachAnswerMakes) {
  const Own own;
  const std::string plain =
      "{% for m in messages %}{{ m.role[0] + ':' + m.content + ';' }}{% endfor %}"
      "{% if add_generation_prompt %}a:{% endif %}";
  EXPECT_EQ(own.samples(own.bind(plain), two_turns()), std::vector<std::string>{"u:q0;a:[[a0;]]u:q1;a:[[a1;]]"});
  EXPECT_EQ(own.samples(own.bind(plain), two_turns(), {{false, true}}), std::vector<std::string>{"u:q0;a:a0;u:q1;a:[[a1;]]"});
}

TEST(OwnTemplate, CutsAConversationWhereEarlierAnswersAreShownOtherwise) {
  const Own own;
  Conversation c = two_turns();
  c.prompt[1].thought = "t0";
  c.responses[0].thought = "t1";
  const ChatTemplate chat = own.bind(kReasoning);
  EXPECT_EQ(own.samples(chat, c),
            (std::vector<std::string>{"<|im_start|>u:q0<|im_end|>;<|im_start|>a:[[<think>t0</think>a0<|im_end|>;]]",
                                      "<|im_start|>u:q0<|im_end|>;<|im_start|>a:a0<|im_end|>;<|im_start|>u:q1<|im_end|>;"
                                      "<|im_start|>a:[[<think>t1</think>a1<|im_end|>;]]"}));
  EXPECT_EQ(own.samples(chat, c, {{false, true}, true}).size(), 1U);
  EXPECT_THROW(chat.training_samples(c, {}, {.prompts = true}), Error);
}

TEST(OwnTemplate, KeepsAChainOfCallsInOneSample) {
  const Own own;
  Conversation c;
  Message call = with_thought("", "t0");
  call.calls.push_back({"f", {{"x", 1}}});
  Message results{Role::observation, "r0"};
  results.more_results.push_back({Role::observation, "r1"});
  c.prompt = {{Role::user, "q"}, call, results};
  c.responses = {with_thought("done", "t1")};
  c.tools = read_tools(Json(R"([{"name": "f", "parameters": {}}])"), "tools");
  EXPECT_EQ(own.samples(own.bind(kReasoning), c),
            std::vector<std::string>{"[f]<|im_start|>u:q<|im_end|>;<|im_start|>a:[[<think>t0</think>(f{\"x\": 1})<|im_end|>;]]"
                                     "<|im_start|>t:r0<|im_end|>;<|im_start|>t:r1<|im_end|>;"
                                     "<|im_start|>a:[[<think>t1</think>done<|im_end|>;]]"});
}

TEST(OwnTemplate, LearnsWhatGenerationMarks) {
  const Own own;
  EXPECT_EQ(own.samples(own.bind(kGenerating), two_turns()),
            std::vector<std::string>{"U q0;A [[a0<|im_end|>]];U q1;A [[a1<|im_end|>]]"});
}

TEST(OwnTemplate, EndsWhereAnAnswerEnds) {
  const Own own;
  EXPECT_EQ(own.bind(kReasoning).eos_id(), own.tokenizer->token_to_id("<|im_end|>"));
  EXPECT_EQ(own.bind(kReasoning).stop_token_ids().size(), 2U);  // and the tokenizer's
  EXPECT_EQ(own.bind("{{ messages[0].content }}").eos_id(), own.tokenizer->eos_id());
}

TEST(OwnTemplate, OfAPairTheQuestionIsOne) {
  const Own own;
  Conversation c;
  c.prompt = {{Role::user, "q"}};
  const ChatTemplate chat = own.bind(kReasoning);
  const Turn chosen = chat.encode_answer(c, with_thought("a", "t")), rejected = chat.encode_answer(c, {Role::assistant, "b"});
  EXPECT_EQ(chosen.source, rejected.source);
  EXPECT_EQ(own.tokenizer->decode(chosen.target), "<think>t</think>a<|im_end|>;");
  EXPECT_EQ(own.tokenizer->decode(rejected.target), "<think></think>b<|im_end|>;");
}

TEST(OwnTemplate, ThinkingThatIsOffTakesThoughtsOut) {
  const Own own;
  TemplateOptions off;
  off.enable_thinking = false;
  off.variables["enable_thinking"] = false;
  Conversation c;
  c.prompt = {{Role::user, "q"}};
  c.responses = {with_thought("a", "t")};
  EXPECT_EQ(own.samples(own.bind(kReasoning, off), c),
            std::vector<std::string>{"<|im_start|>u:q<|im_end|>;<|im_start|>a:<think></think>[[a<|im_end|>;]]"});
}

TEST(OwnTemplate, RefusesWhatItDoesNotShow) {
  const Own own;
  const std::string plain =
      "{% for m in messages %}{{ m.role[0] + ':' + m.content + '<|im_end|>' }}{% endfor %}"
      "{% if add_generation_prompt %}a:{% endif %}";
  Conversation c;
  c.prompt = {{Role::user, "q"}};
  c.responses = {with_thought("a", "t")};
  expect_error<Error>([&] { own.bind(plain).training_samples(c); }, {"thought", "reasoning_content"});
  c.responses = {{Role::assistant, "a"}};
  c.responses[0].calls.push_back({"f"});
  expect_error<Error>([&] { own.bind(plain).training_samples(c); }, {"call of answer 1"});
  const std::string asks_otherwise =
      "{% for m in messages %}{{ m.role[0] + ':' + m.content }}{% endfor %}"
      "{% if add_generation_prompt %}b:{% endif %}";
  c.responses = {{Role::assistant, "a"}};
  expect_error<Error>([&] { own.bind(asks_otherwise).training_samples(c); }, {"before answer 1", "b:", "a:a"});
  const std::string refuses = "{{ raise_exception('no such chat') }}";
  expect_error<Error>([&] { own.bind(refuses).training_samples(c); }, {"refuses", "no such chat"});
}

TEST(OwnTemplate, OptionsThatDoNothingAreRefused) {
  const Own own;
  TemplateOptions options = Own::no_thinking_given();
  options.tool_format = "qwen";
  expect_error<ConfigError>([&] { own.bind(kGenerating, options); }, {"tool_format", "qwen"});
  options = Own::no_thinking_given();
  options.preserve_thinking = true;
  expect_error<ConfigError>([&] { own.bind(kGenerating, options); }, {"preserve_thinking", "does not read"});
  options = Own::no_thinking_given();
  options.variables["messages"] = 1;
  expect_error<ConfigError>([&] { own.bind(kGenerating, options); }, {"messages", "chat_template_kwargs"});
  expect_error<ConfigError>([&] { own.bind("{% for %}"); }, {"t.jinja:1"});
}

TEST(OwnTemplate, IsTakenWithoutAKey) {
  SmallRun run;
  run.folder.write("chat_template.jinja", kGenerating);
  run.config.data.template_name = "";
  run.add("d", "d.jsonl", "{\"instruction\": \"q\", \"output\": \"a\"}\n");
  const auto encoded = run.encode();
  ASSERT_EQ(encoded.items.size(), 1U);
  EXPECT_EQ(run.text(encoded.items[0].sequences[0].ids), "U q;A a<|im_end|>");
  EXPECT_EQ(run.learned(encoded.items[0].sequences[0]), std::vector<std::string>{"a<|im_end|>"});
  run.config.data.chat_template = run.folder.write("other.jinja", "{% for m in messages %}{{ m.content }}|{% endfor %}").string();
  EXPECT_EQ(run.text(run.encode().items[0].sequences[0].ids), "q|a|");
  run.config.data.template_name = "chatml";
  expect_error<ConfigError>([&] { run.encode(); }, {"chat_template", "chatml", "one of the two"});
}

TEST(OwnTemplate, IsComparedWithATemplateThatIsNamed) {
  SmallRun run;
  run.folder.write("chat_template.jinja", kGenerating);
  run.add("d", "d.jsonl", "{\"instruction\": \"q\", \"output\": \"a\"}\n");
  run.folder.write("dataset_info.json", run.info.dump());
  const std::vector<std::string> lines = compare_with_own(run.config);
  ASSERT_EQ(lines.size(), 3U);
  EXPECT_NE(lines[0].find("d.jsonl:1"), std::string::npos);
  EXPECT_NE(lines[1].find("chatml: \"<|im_start|>user"), std::string::npos) << lines[1];
  EXPECT_NE(lines[2].find("own: \"U q;A a"), std::string::npos) << lines[2];
}

}  // namespace
