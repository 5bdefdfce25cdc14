// The model's own chat template: rendered conversations, and their learned parts.
#include "qft/core/error.h"
#include "qft/encode/chat_template.h"
#include "qft/encode/template_comparison.h"
#include "qft/jinja/template.h"

#include <cmath>

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

// Like Qwen's: omits thoughts of answers before the last question; the last answer has a thought, even if empty.
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
  static TemplateOptions thinking_off() {
    TemplateOptions options;
    options.enable_thinking = false;
    options.variables["enable_thinking"] = false;
    return options;
  }
  /// Returns samples as texts, with the learned parts in [[ ]].
  std::vector<std::string> samples(const ChatTemplate& chat, const Conversation& c, const AnswerChoice& choice = {}) const {
    std::vector<std::string> texts;
    for (const TrainingSample& sample : chat.training_samples(c, choice)) {
      std::string& text = texts.emplace_back();
      for (const Exchange& turn : sample) text += tokenizer->decode(turn.source) + "[[" + tokenizer->decode(turn.target) + "]]";
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
  EXPECT_EQ(own.bind(kReasoning).stop_token_ids().size(), 2U);  // with the tokenizer's
  EXPECT_EQ(own.bind("{{ messages[0].content }}").eos_id(), own.tokenizer->eos_id());
}

TEST(OwnTemplate, OfAPairTheQuestionIsOne) {
  const Own own;
  Conversation c;
  c.prompt = {{Role::user, "q"}};
  const ChatTemplate chat = own.bind(kReasoning);
  const Exchange chosen = chat.encode_answer(c, with_thought("a", "t")), rejected = chat.encode_answer(c, {Role::assistant, "b"});
  EXPECT_EQ(chosen.source, rejected.source);
  EXPECT_EQ(own.tokenizer->decode(chosen.target), "<think>t</think>a<|im_end|>;");
  EXPECT_EQ(own.tokenizer->decode(rejected.target), "<think></think>b<|im_end|>;");
}

TEST(OwnTemplate, ThinkingThatIsOffTakesThoughtsOut) {
  const Own own;
  Conversation c;
  c.prompt = {{Role::user, "q"}};
  c.responses = {with_thought("a", "t")};
  EXPECT_EQ(own.samples(own.bind(kReasoning, Own::thinking_off()), c),
            std::vector<std::string>{"<|im_start|>u:q<|im_end|>;<|im_start|>a:<think></think>[[a<|im_end|>;]]"});
}

/// Each message as "u:TEXT;", an answer with its calls as written by the template's `calls`.
std::string plain_with(const std::string& calls) {
  return "{% for m in messages %}{{ m.role[0] + ':' + m.content }}" + calls +
         "{{ '<|im_end|>' }}{% endfor %}{% if add_generation_prompt %}a:{% endif %}";
}

Conversation asks_for_calls() {
  Conversation c;
  c.prompt = {{Role::user, "q"}};
  c.responses = {{Role::assistant, ""}};
  c.responses[0].calls = {{"f", {{"city", "\"Oslo\"\n"}, {"days", 3}}}, {"f", {{"city", "Rome"}, {"on", true}, {"no", nullptr}}}};
  return c;
}

TEST(OwnTemplate, RequiresCallsWithAllTheirArguments) {
  const Own own;
  const auto samples = [&](const std::string& calls) { return own.samples(own.bind(plain_with(calls)), asks_for_calls()); };
  // As JSON, as JSON in a text, and as plain values.
  EXPECT_EQ(samples("{{ m.tool_calls|tojson if m.tool_calls }}").size(), 1U);
  EXPECT_EQ(
      samples("{% for c in m.tool_calls or [] %}{{ c.function.name }}{{ (c.function.arguments|tojson)|tojson }}{% endfor %}")
          .size(),
      1U);
  EXPECT_EQ(
      samples(
          "{% for c in m.tool_calls or [] %}{{ c.function.name }}{% for k, v in c.function.arguments.items() %} {{ k }}={{ v }}"
          "{% endfor %}{% endfor %}")
          .size(),
      1U);
  const auto refuses = [&](const std::string& calls, const std::vector<std::string>& parts) {
    SCOPED_TRACE(calls);
    expect_error<Error>([&] { samples(calls); }, parts);
  };
  refuses("{{ m.tool_calls[0].function|tojson if m.tool_calls }}", {"the call of answer 1", "\"f\""});
  refuses("{% for c in m.tool_calls or [] %}{{ c.function.name }}{% endfor %}", {"the arguments of the call of 'f'", "city"});
  refuses("{% for c in m.tool_calls or [] %}{{ c.function.name }}city days on no {{ c.function.arguments.city }}{% endfor %}",
          {"the arguments", "\"3\""});
}

TEST(OwnTemplate, RequiresAllPartsOfThePrompt) {
  const Own own;
  const auto refuses = [&](const std::string& text, const Conversation& c, const std::vector<std::string>& parts) {
    SCOPED_TRACE(text);
    expect_error<Error>([&] { own.bind(text).training_samples(c); }, parts);
    expect_error<Error>([&] { own.bind(text).render_prompt(c); }, parts);
  };
  const std::string last_alone =
      "{{ tools[0].type if tools }}{% for m in messages if m.role != 'system' and (loop.last or m.role != 'user' or "
      "loop.index > 2) %}{{ m.role[0] + ':' + m.content }};{% endfor %}{% if add_generation_prompt %}a:{% endif %}";
  Conversation c;
  c.prompt = {{Role::user, "q"}};
  c.responses = {{Role::assistant, "a"}};
  c.system = "Be brief.";
  refuses("{% for m in messages[1:] %}{{ m.role[0] + ':' + m.content }};{% endfor %}{% if add_generation_prompt %}a:{% endif %}",
          c, {"does not show system messages"});
  c.system.clear();
  c.tools = read_tools(Json(R"([{"name": "weather", "parameters": {}}])"), "tools");
  refuses("{{ tools[0].type if tools }}" + plain_with(""), c, {"the tool", "weather"});
  c.tools = Json::array();
  c.prompt = {{Role::user, "first question"}, {Role::assistant, "a0"}, {Role::user, "q1"}};
  refuses(
      "{% for m in messages[2 if messages|length > 2 else 0:] %}{{ m.role[0] + ':' + m.content }};{% endfor %}{% if "
      "add_generation_prompt %}a:{% endif %}",
      c, {"the text of message 1", "first question"});
  c.prompt[1].calls = {{"weather"}};
  c.prompt[2] = {Role::observation, "rain"};
  c.prompt[2].more_results = {{Role::observation, "snow"}};
  AnswerChoice last{{false, true}};
  expect_error<Error>([&] { own.bind(plain_with("")).training_samples(c, last); }, {"the call of message 2", "weather"});
}

TEST(OwnTemplate, AlwaysRequiresTheTextAndThoughtsInTexts) {
  const Own own;
  Conversation c;
  c.prompt = {{Role::user, "q"}};
  c.responses = {{Role::assistant, "an answer"}};
  const auto shows = [](const std::string& text) {
    return "{% for m in messages %}{{ m.role[0] + ':' }}{{ " + text +
           " }};{% endfor %}{% if add_generation_prompt %}a:{% endif %}";
  };
  expect_error<Error>([&] { own.bind(shows("m.content[:4]")).training_samples(c); }, {"the text of answer 1", "an answer"});
  c.responses = {{Role::assistant, "<think>long</think>\n\nshort"}};
  EXPECT_EQ(own.samples(own.bind(shows("m.content")), c).size(), 1U);
  expect_error<Error>([&] { own.bind(shows("m.content.split('</think>')[-1]")).training_samples(c); },
                      {"the thought of answer 1", "long"});
}

TEST(OwnTemplate, OneThoughtMayStandInTextAndKey) {
  const Own own;
  Conversation c;
  c.prompt = {{Role::user, "q"}};
  c.responses = {with_thought("<think>\nt\n</think>\n\na", "t")};
  EXPECT_EQ(own.samples(own.bind(kReasoning), c),
            std::vector<std::string>{"<|im_start|>u:q<|im_end|>;<|im_start|>a:[[<think>t</think>a<|im_end|>;]]"});
  c.responses = {with_thought("<think>s</think>a", "t")};
  expect_error<Error>([&] { own.bind(kReasoning).training_samples(c); },
                      {"one thought in a separate key", "another one in its text"});
}

// A prompt that changes once the answer is there, as in templates that count messages or mark the last one.
constexpr const char* kMarkedChanging =
    R"({{ messages|length }}{% for m in messages %}{% if m.role == 'assistant' %}A {% if loop.last and 't' not in m.content %}(){% endif %}
{%- generation %}{{ m.content }}<|im_end|>{% endgeneration %};
{%- else %}U {{ m.content }};{% endif %}{% endfor %}{% if add_generation_prompt %}A {% endif %})";

TEST(OwnTemplate, MarksOfGenerationSayWhatIsLearnedWhereThePromptChanges) {
  const Own own;
  EXPECT_EQ(own.samples(own.bind(kMarkedChanging), two_turns()),
            (std::vector<std::string>{"2U q0;A ()[[a0<|im_end|>]]", "4U q0;A a0<|im_end|>;U q1;A ()[[a1<|im_end|>]]"}));
}

TEST(OwnTemplate, PairsMayHaveOtherPromptsByTheirMarks) {
  SmallRun run;
  run.folder.write("chat_template.jinja", kMarkedChanging);
  run.config.data.template_name = "";
  run.config.finetuning.stage = "dpo";
  run.add("d", "d.jsonl",
          R"({"instruction": "q", "chosen": "to", "rejected": "go"})"
          "\n",
          {{"ranking", true}, {"columns", {{"prompt", "instruction"}, {"chosen", "chosen"}, {"rejected", "rejected"}}}});
  const auto items = run.encode().items;
  ASSERT_EQ(items.size(), 1U);
  EXPECT_EQ(run.text(items[0].sequences[0].ids), "2U q;A to<|im_end|>");
  EXPECT_EQ(run.text(items[0].sequences[1].ids), "2U q;A ()go<|im_end|>");
  EXPECT_EQ(run.learned(items[0].sequences[1]), std::vector<std::string>{"go<|im_end|>"});
}

TEST(OwnTemplate, CuttingKeepsTheEndOfThePrompt) {
  SmallRun run;
  run.folder.write("chat_template.jinja", plain_with(""));
  run.config.data.template_name = "";
  run.config.data.mask_history = true;
  run.config.data.cutoff_len = 16;
  run.add("d", "d.jsonl",
          R"({"history": [["a long first question", "and its answer"]], "instruction": "q1", "output": "a1"})"
          "\n",
          {{"columns", {{"prompt", "instruction"}, {"response", "output"}, {"history", "history"}}}});
  const auto encoded = run.encode();
  ASSERT_EQ(encoded.items.size(), 1U);
  EXPECT_EQ(run.text(encoded.items[0].sequences[0].ids), "nswer<|im_end|>u:q1<|im_end|>a:a1<|im_end|>");
  EXPECT_EQ(run.learned(encoded.items[0].sequences[0]), std::vector<std::string>{"a1<|im_end|>"});
  EXPECT_EQ(encoded.counts[0].truncated, 1);
}

TEST(OwnTemplate, CuttingLeavesAChainItsLastAnswer) {
  SmallRun run;
  run.folder.write("chat_template.jinja", kReasoning);
  run.config.data.template_name = "";
  run.config.data.enable_thinking.reset();
  run.config.data.cutoff_len = 60;
  run.add(
      "d", "d.jsonl",
      R"({"messages": [{"role": "user", "content": ")" + std::string(100, 'x') +
          R"("}, {"role": "assistant", "content": "a0"}, )"
          R"({"role": "user", "content": "q1"}, {"role": "assistant", "content": "", "reasoning_content": "t1", "tool_calls": [{"function": {"name": "f", "arguments": {}}}]}, )"
          R"({"role": "tool", "content": "r"}, {"role": "assistant", "content": "a1"}]})",
      {{"formatting", "sharegpt"},
       {"columns", {{"messages", "messages"}}},
       {"tags", {{"role_tag", "role"}, {"content_tag", "content"}, {"user_tag", "user"}, {"assistant_tag", "assistant"}}}});
  const auto encoded = run.encode();
  ASSERT_EQ(encoded.items.size(), 2U);
  const auto learned = run.learned(encoded.items[1].sequences[0]);
  ASSERT_FALSE(learned.empty());
  EXPECT_NE(learned.back().find("a1<|im_end|>"), std::string::npos) << learned.back();
  EXPECT_EQ(encoded.counts[0].truncated, 1) << "records, not samples";
}

TEST(OwnTemplate, WithoutAnEndTokenTeachesNone) {
  const Own own;
  const ChatTemplate chat = own.bind("{% for m in messages %}{{ m.content }}|{% endfor %}");
  EXPECT_FALSE(chat.answer_end());
  EXPECT_EQ(chat.eos_id(), own.tokenizer->eos_id()) << "generation ends there";
  EXPECT_EQ(own.bind(kReasoning).answer_end(), own.tokenizer->token_to_id("<|im_end|>"));
}

TEST(OwnTemplate, AnAdapterHasTheOneItWasTrainedWith) {
  SmallRun run;
  run.folder.write("chat_template.jinja", kGenerating);
  run.folder.write("adapter/chat_template.jinja", "{% for m in messages %}{{ m.content }}|{% endfor %}");
  run.config.data.template_name = "";
  run.config.model.adapter_name_or_path = {(run.folder.path() / "adapter").string()};
  run.add("d", "d.jsonl", "{\"instruction\": \"q\", \"output\": \"a\"}\n");
  EXPECT_EQ(run.text(run.encode().items[0].sequences[0].ids), "q|a|");
  run.config.model.adapter_name_or_path = {(run.folder.path() / "adapter without one").string()};
  EXPECT_EQ(run.text(run.encode().items[0].sequences[0].ids), "U q;A a<|im_end|>");
}

TEST(OwnTemplate, IsSavedWithTheVariablesOfTheRun) {
  const Own own;
  TemplateOptions options = Own::no_thinking_given();
  const std::string reads = "\n  {{ style.words[1] }}{{ n }}{{ flag }}" + plain_with("");
  EXPECT_EQ(own.bind(reads, options).jinja(), reads);
  options.variables = Json::parse(R"({"style": {"words": ["a", "it's\n"]}, "n": 1.5, "flag": null})");
  options.default_system = "Be 'brief'.";
  const std::string saved = own.bind(reads, options).jinja();
  Conversation c = two_turns();
  const ChatTemplate plain = own.bind(saved), given = own.bind(reads, options);
  EXPECT_EQ(own.tokenizer->decode(plain.render_prompt(c)), own.tokenizer->decode(given.render_prompt(c)));
  EXPECT_EQ(own.tokenizer->decode(plain.render_prompt(c)),
            "\n  it's\n1.5Nones:Be 'brief'.<|im_end|>u:q0<|im_end|>a:a0<|im_end|>u:q1<|im_end|>a:");
  c.system = "Be long.";
  EXPECT_NE(own.tokenizer->decode(plain.render_prompt(c)).find("Nones:Be long.<|im_end|>u:q0"), std::string::npos);
  TemplateOptions other = Own::no_thinking_given();
  other.variables["n"] = 2;
  EXPECT_NE(own.tokenizer->decode(own.bind(saved, other).render_prompt(c)).find("it's\n2None"), std::string::npos)
      << "a caller's own value wins";
}

// Shows each answer with its thought, whatever else the template says.
constexpr const char* kProse =
    R"({# reasoning_content and thinking are words here #}{{ 'A careful thinking process, in <think> and </think>.' }}
{%- for m in messages %}{{ m.role[0] + ':' + m.content + '<|im_end|>' }}{% endfor %}{% if add_generation_prompt %}a:{% endif %})";

TEST(OwnTemplate, ProseAboutThinkingIsNoKeyForThoughts) {
  const Own own;
  Conversation c;
  c.prompt = {{Role::user, "q"}};
  c.responses = {with_thought("a", "t")};
  const std::vector<std::string> samples = own.samples(own.bind(kProse), c);
  ASSERT_EQ(samples.size(), 1U);
  EXPECT_NE(samples[0].find("a:[[<think>\nt\n</think>\n\na<|im_end|>]]"), std::string::npos) << samples[0];
}

TEST(OwnTemplate, ARecordsOwnThinkingWins) {
  const Own own;
  Conversation c;
  c.prompt = {{Role::user, "q"}};
  c.responses = {with_thought("a", "t")};
  c.template_kwargs["enable_thinking"] = true;
  EXPECT_EQ(own.samples(own.bind(kReasoning, Own::thinking_off()), c),
            std::vector<std::string>{"<|im_start|>u:q<|im_end|>;<|im_start|>a:[[<think>t</think>a<|im_end|>;]]"});
  c.template_kwargs["enable_thinking"] = false;
  EXPECT_EQ(own.samples(own.bind(kReasoning), c),
            std::vector<std::string>{"<|im_start|>u:q<|im_end|>;<|im_start|>a:<think></think>[[a<|im_end|>;]]"});
}

TEST(OwnTemplate, ShowsASystemMessageThatIsEmpty) {
  SmallRun run;
  run.folder.write("chat_template.jinja", "{% if messages[0].role != 'system' %}s:default;{% endif %}" + plain_with(""));
  run.config.data.template_name = "";
  run.config.data.default_system = "the run's";
  const auto message = [](const char* role, const char* text) {
    return fmt::format(R"({{"role": "{}", "content": "{}"}})", role, text);
  };
  run.add("d", "d.jsonl",
          fmt::format("{{\"messages\": [{0}, {1}, {2}]}}\n{{\"messages\": [{1}, {2}]}}\n", message("system", ""),
                      message("user", "q"), message("assistant", "a")),
          {{"formatting", "sharegpt"},
           {"columns", {{"messages", "messages"}}},
           {"tags", {{"role_tag", "role"}, {"content_tag", "content"}, {"user_tag", "user"}, {"assistant_tag", "assistant"}}}});
  const auto items = run.encode().items;
  ASSERT_EQ(items.size(), 2U);
  EXPECT_EQ(run.text(items[0].sequences[0].ids), "s:<|im_end|>u:q<|im_end|>a:a<|im_end|>");
  EXPECT_EQ(run.text(items[1].sequences[0].ids), "s:the run's<|im_end|>u:q<|im_end|>a:a<|im_end|>");
}

TEST(OwnTemplate, EarlierCallsAreSearchedBehindTheToolsAndQuestions) {
  const Own own;
  Conversation c;
  Message call{Role::assistant, ""};
  call.calls = {{"weather", {{"city", "Oslo"}}}};
  c.prompt = {{Role::user, "q"}, call, {Role::observation, "rain"}};
  c.responses = {{Role::assistant, "a"}};
  c.tools = read_tools(Json(R"([{"name": "weather", "parameters": {}}])"), "tools");
  const std::string tools = "{{ tools|tojson if tools }}";
  const AnswerChoice last{{false, true}, true};
  EXPECT_EQ(own.samples(own.bind(tools + plain_with("{{ m.tool_calls|tojson if m.tool_calls }}")), c, last).size(), 1U);
  expect_error<Error>([&] { own.bind(tools + plain_with("")).training_samples(c, last); }, {"the call of message 2", "weather"});
  expect_error<Error>(
      [&] { own.bind(tools + plain_with("{{ m.tool_calls[0].function.name if m.tool_calls }}")).training_samples(c, last); },
      {"the arguments of the call of 'weather' of message 2", "city"});
}

// A mark after an answer that disappears once the conversation continues.
TEST(OwnTemplate, MarkedPiecesOfThePromptThatGoAwayAreNotCounted) {
  const Own own;
  const std::string text =
      "{% for m in messages %}{% if m.role == 'assistant' %}A {% generation %}{{ m.content }}{% endgeneration %}"
      "{% elif m.role == 'tool' %}T {{ m.content }};{% if loop.last %}{% generation %}<turn>{% endgeneration %}{% endif %}"
      "{% else %}U {{ m.content }};{% endif %}{% endfor %}{% if add_generation_prompt %}A {% endif %}";
  Conversation c;
  c.prompt = {{Role::user, "q"}, {Role::assistant, "calls"}, {Role::observation, "r"}};
  c.responses = {{Role::assistant, "sunny"}};
  EXPECT_EQ(own.samples(own.bind(text), c), std::vector<std::string>{"U q;A [[calls]]T r;A [[sunny]]"});
}

TEST(OwnTemplate, ArgumentsThatAreOnlyPrintedAreJson) {
  const Own own;
  Conversation c;
  c.prompt = {{Role::user, "q"}};
  c.responses = {{Role::assistant, ""}};
  c.responses[0].calls = {{"f", {{"city", "Oslo"}}}};
  for (const char* calls : {"{% for c in m.tool_calls or [] %}{{ c.function.name }}{{ c.function.arguments }}{% endfor %}",
                            "{% for c in m.tool_calls or [] %}{{ c.function.name + c.function.arguments }}{% endfor %}"})
    EXPECT_EQ(own.samples(own.bind(plain_with(calls)), c),
              std::vector<std::string>{R"(u:q<|im_end|>a:[[f{"city": "Oslo"}<|im_end|>]])"});
}

TEST(OwnTemplate, BlanksAndLiteralsOfTheTemplateAreTheSamePart) {
  const Own own;
  Conversation c;
  c.prompt = {{Role::user, "\u3000\u00a0 \u4ece\u524d\u2003\n"}};
  c.responses = {{Role::assistant, "\u2028a"}};
  c.responses[0].calls = {{"f", {{"c", "it's a \\ \n"}, {"n", std::nan("")}}}};
  const std::string calls =
      "{% for c in m.tool_calls or [] %}{{ c.function.name }}{% for k, v in c.function.arguments.items() %}{{ k }}='"
      "{{ v|string|replace('\\\\', '\\\\\\\\')|replace(\"'\", \"\\\\'\")|replace('\\n', '\\\\n') }}'{% endfor %}{% endfor %}";
  const std::string trims = "{% for m in messages %}{{ m.role[0] + ':' + m.content|trim }}" + calls +
                            "{{ '<|im_end|>' }}{% endfor %}{% if add_generation_prompt %}a:{% endif %}";
  EXPECT_EQ(own.samples(own.bind(trims), c),
            std::vector<std::string>{"u:\u4ece\u524d<|im_end|>a:[[afc='it\\'s a \\\\ \\n'n='nan'<|im_end|>]]"});
}

TEST(OwnTemplate, CuttingLeavesNoHole) {
  SmallRun run;
  run.folder.write("chat_template.jinja", plain_with(""));
  run.config.data.template_name = "";
  const std::string long_text(30, 'x');
  run.add(
      "d", "d.jsonl",
      nlohmann::json{
          {"h", nlohmann::json::array({nlohmann::json::array({"q0", "a0"}), nlohmann::json::array({"q1" + long_text, "a1"})})},
          {"q", "q2" + long_text},
          {"a", "a2" + long_text}}
              .dump() +
          "\n",
      {{"columns", {{"prompt", "q"}, {"response", "a"}, {"history", "h"}}}});
  run.config.data.cutoff_len = 1000;
  const std::string whole = run.text(run.encode().items[0].sequences[0].ids);
  for (const bool mask_history : {false, true})
    for (int cutoff = 4; cutoff < 130; ++cutoff) {
      run.config.data.cutoff_len = cutoff;
      run.config.data.mask_history = mask_history;
      const auto encoded = run.encode();
      ASSERT_EQ(encoded.items.size(), 1U);
      const std::string text = run.text(encoded.items[0].sequences[0].ids);
      EXPECT_NE(whole.find(text), std::string::npos) << cutoff << " " << mask_history << ": " << text;
      EXPECT_LE(encoded.items[0].sequences[0].ids.size(), static_cast<std::size_t>(cutoff));
      EXPECT_GT(encoded.items[0].sequences[0].num_labels(), 0);
    }
}

TEST(OwnTemplate, KeepsTheTokenizersEndTokenWhereItIsBehindAnswersToo) {
  const Own own;
  const ChatTemplate two = own.bind("{% for m in messages %}{{ m.content }}<|im_end|>\n{{ eos_token }}{% endfor %}");
  EXPECT_EQ(two.eos_id(), own.tokenizer->token_to_id("<|im_end|>"));
  EXPECT_EQ(two.answer_end(), own.tokenizer->eos_id());
}

TEST(OwnTemplate, OnlyVariablesThatItReadsAreSaved) {
  const Own own;
  TemplateOptions options = Own::no_thinking_given();
  options.variables = Json::parse(R"({"my-key": 1, "documents": [{"text": "d"}]})");
  const std::string saved = own.bind("{{ documents[0].text if documents }}" + plain_with(""), options).jinja();
  EXPECT_EQ(saved.find("my-key"), saved.npos);
  Json variables = {
      {"messages", Json::array({{{"role", "user"}, {"content", "q"}}})}, {"documents", nullptr}, {"add_generation_prompt", true}};
  EXPECT_EQ(qft::jinja::Template::parse(saved, "t").render(variables).text, "du:q<|im_end|>a:");
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
  own.bind(plain_with("{% for c in m.tool_calls or [] %}<tool_call>\n{{ c.function|tojson }}\n</tool_call>{% endfor %}"),
           options);
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
