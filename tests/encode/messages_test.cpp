// Reads messages: thoughts, text and calls in all forms that datasets use; adjacent messages; empty answers.
#include "qft/core/error.h"
#include "qft/encode/encoder.h"
#include "qft/encode/record_converter.h"

#include "encode/thought.h"
#include "encode/tool_calls.h"
#include "fixture.h"

namespace {

using namespace qft::encode;  // NOLINT: a test
using qft::Error;
using qft::Json;
using qft::test::expect_error;
using qft::test::SmallRun;

struct Reading {
  DatasetSpec spec;
  Reading() {
    spec.name = "d";
    spec.formatting = Formatting::sharegpt;
    spec.tags = {.role = "role",
                 .content = "content",
                 .user = "user",
                 .assistant = "assistant",
                 .observation = "tool",
                 .function = "function_call",
                 .system = "system"};
    spec.columns = {};
    spec.columns.messages = "messages";
    spec.columns.tools = "tools";
  }
  std::variant<Conversation, Drop> convert(const std::string& record) const {
    RecordConverter converter(spec, false);
    return converter.convert({.text = record});
  }
  /// Returns the conversation of a question and these messages.
  Conversation after_question(const std::string& messages) const {
    auto converted = convert(R"({"messages": [{"role": "user", "content": "q"}, )" + messages + "]}");
    const auto* drop = std::get_if<Drop>(&converted);
    if (drop != nullptr) throw Error("dropped: " + drop->detail);
    return std::get<Conversation>(std::move(converted));
  }
  Message answer(const std::string& message) const { return after_question(message).responses.front(); }
  void refuses(const std::string& messages, const std::vector<std::string>& parts) const {
    SCOPED_TRACE(messages);
    expect_error<Error>([&] { after_question(messages); }, parts);
  }
};

std::string call(const std::string& arguments) {
  return R"({"role": "assistant", "content": null, "tool_calls": [{"id": "i", "type": "function", "function": {"name": "f")" +
         arguments + "}}]}";
}

TEST(Messages, MayEndWithTheQuestionForThoseWhoAnswerIt) {
  Reading r;
  const auto prompt = [&](const std::string& record) {
    RecordConverter converter(r.spec, false, Ending::any);
    return std::get<Conversation>(converter.convert({.text = record}));
  };
  const std::string question = R"({"role": "user", "content": "q"})", answer = R"({"role": "assistant", "content": "a"})";
  const std::string result = R"({"role": "tool", "content": "4"})";
  const std::string called = call(R"(, "arguments": {})");
  const auto record = [](const std::string& messages) { return R"({"messages": [)" + messages + "]}"; };
  EXPECT_EQ(std::get<Drop>(r.convert(record(question))).reason, DropReason::turns);
  EXPECT_TRUE(prompt(record(question)).responses.empty());
  EXPECT_EQ(prompt(record(question + "," + answer + "," + question)).prompt.size(), 3U);
  EXPECT_EQ(prompt(record(question + "," + called + "," + result)).prompt.back().role, Role::observation);
  const Conversation answered = prompt(record(question + "," + answer));
  EXPECT_EQ(answered.prompt.size(), 1U);
  EXPECT_EQ(answered.responses.at(0).text, "a");

  r.spec.formatting = Formatting::turns;
  r.spec.tags.user = "human";
  r.spec.tags.assistant = "bot";
  EXPECT_EQ(prompt(record(R"({"human": "q", "bot": "a"}, {"human": "r"})")).prompt.size(), 3U);
  expect_error<Error>([&] { r.convert(record(R"({"human": "q"})")); }, {"message 1 has no 'bot'"});
  expect_error<Error>([&] { prompt(record(R"({"human": "q"}, {"human": "r"})")); }, {"message 1 has no 'bot'"});
}

TEST(Messages, ThoughtsHaveKeysOrBlocksOfTheirOwn) {
  const Reading r;
  for (const char* key : {"reasoning_content", "reasoning", "thinking"})
    EXPECT_EQ(r.answer(fmt::format(R"({{"role": "assistant", "content": "a", "{}": "t"}})", key)).thought, "t") << key;
  const Message blocks =
      r.answer(R"({"role": "assistant", "content": [{"type": "thinking", "thinking": "t"}, {"type": "text", "text": "a"},
                                      {"type": "text", "text": "b"}]})");
  EXPECT_EQ(blocks.thought, "t");
  EXPECT_EQ(blocks.text, "ab");
  EXPECT_EQ(r.answer(R"({"role": "assistant", "content": "a", "reasoning": null, "thinking": " "})").thought, std::nullopt);
  r.refuses(R"({"role": "assistant", "content": "a", "reasoning": "t", "thinking": "u"})", {"message 2: thinking", "reasoning"});
  r.refuses(R"({"role": "assistant", "content": "a", "reasoning": ["t"]})", {"message 2: reasoning", "a list"});
}

TEST(Messages, ThoughtsInTextsHaveAnyBlankSpace) {
  const auto split = [](std::string_view text) { return split_thought(text, "<think>", "</think>"); };
  for (const char* text : {"<think>\nt\n</think>\n\na", "<think>t</think>a", "\n<think>\n\nt</think>\na", "t</think>a"}) {
    ASSERT_TRUE(split(text)) << text;
    EXPECT_EQ(split(text)->thought, "t");
    EXPECT_EQ(split(text)->text, "a");
  }
  EXPECT_EQ(split("<think>\n \n</think>\n\na")->thought, "");
  EXPECT_FALSE(split("a <think>t</think> b"));
  EXPECT_FALSE(split("<think> a"));
}

TEST(Messages, ArgumentsAreObjectsHoweverTheyAreWritten) {
  const Reading r;
  for (const char* arguments : {R"(, "arguments": "{\"x\": \"{}\"}")", R"(, "arguments": {"x": "{}"})"})
    EXPECT_EQ(r.answer(call(arguments)).calls.front().arguments, Json({{"x", "{}"}})) << arguments;  // values stay texts
  for (const char* arguments : {"", R"(, "arguments": "")", R"(, "arguments": " ")", R"(, "arguments": null)",
                                R"(, "arguments": "null")", R"(, "arguments": {})", R"(, "arguments": "{}")"})
    EXPECT_EQ(r.answer(call(arguments)).calls.front().arguments, Json::object()) << arguments;
  for (const char* arguments : {R"(, "arguments": "{x: 1}")", R"(, "arguments": [1])", R"(, "arguments": "[1]")",
                                R"(, "arguments": 5)", R"(, "arguments": "\"{}\"")"})
    r.refuses(call(arguments), {"message 2", "arguments"});
}

TEST(Messages, CallsHaveManyForms) {
  const Reading r;
  const Call expected{"f", {{"x", 1}}};
  for (const char* message :
       {R"({"role": "assistant", "function_call": {"name": "f", "arguments": "{\"x\": 1}"}})",
        R"({"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "f", "arguments": {"x": 1}}}]})",
        R"({"role": "assistant", "content": "", "tool_calls": "[{\"name\": \"f\", \"arguments\": {\"x\": 1}}]"})",
        R"({"role": "tool_call", "content": "{\"name\": \"f\", \"arguments\": {\"x\": 1}}"})",
        R"({"role": "function_call", "content": {"name": "f", "arguments": {"x": 1}}})",
        R"({"role": "function_call", "content": "<tool_call>{\"name\": \"f\", \"arguments\": {\"x\": 1}}</tool_call>"})"})
    EXPECT_EQ(r.answer(message).calls, std::vector<Call>{expected}) << message;
  r.refuses(R"({"role": "assistant", "tool_calls": [{"function": {"arguments": {}}}]})",
            {"message 2: tool_calls", "needs a name"});
  r.refuses(R"({"role": "assistant", "tool_calls": [5]})", {"message 2: tool_calls", "got 5"});
  r.refuses(R"({"role": "function_call", "content": "<tool_call>{\"name\": \"f\"}</tool_call> and then"})",
            {"follows a call", "and then"});
  r.refuses(R"({"role": "function_call", "content": "<tool_call>{\"name\": \"f\"}"})", {"</tool_call> is missing"});
  r.refuses(R"({"role": "function_call", "content": "no call"})", {"invalid JSON"});
}

TEST(Messages, NeighboursAreOneTurn) {
  const Reading r;
  const Conversation c = r.after_question(
      R"({"role": "assistant", "content": "look", "reasoning": "t"}, {"role": "tool_call", "content": "{\"name\": \"f\"}"},
         {"role": "tool_call", "content": "{\"name\": \"g\"}"}, {"role": "tool_response", "content": "1"},
         {"role": "tool", "content": "2"}, {"role": "assistant", "content": "a"})");
  ASSERT_EQ(c.prompt.size(), 3U);
  EXPECT_EQ(c.prompt[1].text, "look");
  EXPECT_EQ(c.prompt[1].thought, "t");
  ASSERT_EQ(c.prompt[1].calls.size(), 2U);
  EXPECT_EQ(c.prompt[1].calls[1].name, "g");
  ASSERT_EQ(c.prompt[2].more_results.size(), 1U);
  EXPECT_EQ(c.prompt[2].more_results[0].text, "2");
  EXPECT_THROW(r.after_question(R"({"role": "assistant", "content": "a"}, {"role": "assistant", "content": "b"})"), Error);
  r.refuses(R"({"role": "assistant", "content": "a", "loss": false}, {"role": "tool_call", "content": "{\"name\": \"f\"}"})",
            {"message 3 continues", "weight"});
}

TEST(Messages, AThoughtAloneGoesOnWithItsText) {
  const Reading r;
  const Message joined = r.answer(R"({"role": "assistant", "content": "", "reasoning_content": "t", "loss": true},
                                     {"role": "assistant", "content": "a"}, {"role": "assistant", "content": null, "tool_calls": [{"function": {"name": "f"}}]})");
  EXPECT_EQ(joined.thought, "t");
  EXPECT_EQ(joined.text, "a");
  EXPECT_EQ(joined.calls.size(), 1U);
  EXPECT_EQ(joined.loss, true);
  EXPECT_EQ(r.answer(R"({"role": "assistant", "content": "a", "reasoning": "t\n", "reasoning_content": "t"})").thought, "t\n");
  r.refuses(R"({"role": "assistant", "content": "a"}, {"role": "assistant", "content": "b"})",
            {"dropped", "message 3 is an answer"});
}

TEST(Messages, SidesOfAPairHaveAllKeysOfAnAnswer) {
  Reading r;
  r.spec.formatting = Formatting::turns;
  r.spec.tags.user = "human";
  r.spec.tags.assistant = "assistant";
  auto converted = r.convert(R"({"messages": [{"human": "q", "assistant": "a", "reasoning_content": "t"}]})");
  ASSERT_TRUE(std::holds_alternative<Conversation>(converted));
  EXPECT_EQ(std::get<Conversation>(converted).responses[0].thought, "t");
  expect_error<Error>([&] { r.convert(R"({"messages": [{"human": "q", "assistant": "", "answer": "here"}]})"); },
                      {"message 1", "'assistant' is empty", "'answer'"});
}

TEST(Messages, FunctionIsAResultBehindACall) {
  Reading r;
  r.spec.tags.function = "function";  // dataset_info.json may set this
  const Conversation c =
      r.after_question(R"({"role": "assistant", "content": null, "function_call": {"name": "f", "arguments": "{}"}},
      {"role": "function", "name": "f", "content": "rain"}, {"role": "assistant", "content": "a"})");
  ASSERT_EQ(c.prompt.size(), 3U);
  EXPECT_EQ(c.prompt[2].role, Role::observation);
  EXPECT_EQ(c.prompt[2].text, "rain");
  EXPECT_EQ(r.answer(R"({"role": "function", "content": "{\"name\": \"f\"}"})").calls.size(), 1U);
}

TEST(Messages, AnEmptyAnswerWithAValueBesideIsAnError) {
  const Reading r;
  r.refuses(R"({"role": "assistant", "content": "", "answer": "text"})", {"message 2", "'content' is empty", "'answer'"});
  EXPECT_TRUE(r.answer(R"({"role": "assistant", "content": "", "answer": "", "id": "7"})").is_empty());
  EXPECT_EQ(r.answer(R"({"role": "assistant", "content": "a", "answer": "text"})").text, "a");  // the log names the key
  EXPECT_EQ(r.answer(R"({"role": "assistant", "content": null, "refusal": "no"})").text, "no");
  r.refuses(R"({"role": "user", "content": null}, {"role": "assistant", "content": "a"})", {"message 2: content", "null"});
}

TEST(Messages, ToolsMayBeTextsOrNone) {
  const Reading r;
  const auto tools = [&](const std::string& value) {
    return std::get<Conversation>(
               r.convert(R"({"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}],
                                               "tools": )" +
                         value + "}"))
        .tools;
  };
  for (const char* none : {"[]", R"("[]")", R"(" ")", R"("null")", "null"}) EXPECT_EQ(tools(none), Json::array()) << none;
  const Json tool = {{"type", "function"}, {"function", {{"name", "f"}, {"parameters", {{"type", "object"}}}}}};
  for (const char* one :
       {R"([{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}])",
        R"({"type": "function", "function": {"name": "f", "parameters": "{\"type\": \"object\"}"}})",
        R"([{"type": "function", "function": "{\"name\": \"f\", \"parameters\": {\"type\": \"object\"}}"}])",
        R"(["{\"type\": \"function\", \"function\": {\"name\": \"f\", \"parameters\": {\"type\": \"object\"}}}"])"})
    EXPECT_EQ(tools(one), Json::array({tool})) << one;
  for (const char* broken :
       {"5", "[5]", R"("f")", R"([{"function": [1]}])", R"([{"function": {"name": "f", "parameters": "[1]"}}])"})
    EXPECT_THROW(tools(broken), Error) << broken;
}

TEST(EmptyAnswers, AreNeverLearned) {
  SmallRun run;
  run.add("d", "d.jsonl",
          "{\"instruction\": \"q\", \"output\": \"x\"}\n{\"instruction\": \"q\", \"output\": \" \\n\"}\n"
          "{\"instruction\": \"q\", \"output\": \"y\", \"history\": [[\"q0\", \"\"]]}\n",
          {{"columns", {{"prompt", "instruction"}, {"response", "output"}, {"history", "history"}}}});
  const auto encoded = run.encode();
  ASSERT_EQ(encoded.items.size(), 2U);
  EXPECT_EQ(encoded.counts[0].dropped[static_cast<std::size_t>(DropReason::empty_answer)], 1);
  EXPECT_EQ(run.learned(encoded.items[1].sequences[0]), std::vector<std::string>{"y<|im_end|>\n"});
}

TEST(EmptyAnswers, OfAPairDropIt) {
  for (const char* stage : {"dpo", "rm"}) {
    SmallRun run;
    run.config.finetuning.stage = stage;
    run.add("d", "d.jsonl",
            "{\"instruction\": \"q\", \"chosen\": \"x\", \"rejected\": \"\"}\n{\"instruction\": \"q\", \"chosen\": \"x\", "
            "\"rejected\": \"y\"}\n",
            {{"ranking", true}, {"columns", {{"prompt", "instruction"}, {"chosen", "chosen"}, {"rejected", "rejected"}}}});
    EXPECT_EQ(run.encode().items.size(), 1U);
  }
}

}  // namespace
