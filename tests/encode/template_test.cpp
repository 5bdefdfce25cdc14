// Templates: files, binding to a tokenizer, thoughts and calls, prompts for generation.
#include "qft/core/error.h"
#include "qft/encode/chat_template.h"

#include <cstdlib>

#include "encode/tool_calls.h"
#include "fixture.h"
#include "test_paths.h"

namespace {

using namespace qft::encode;  // NOLINT: a test
using qft::ConfigError;
using qft::Error;
using qft::test::expect_error;
using qft::test::TempFolder;
using qft::tokenizer::Tokenizer;
namespace fs = std::filesystem;

constexpr const char* kMarked = R"(name: marked
system: "[{{content}}]"
user: "<{{content}}>"
assistant: "{{content}}{{eos_token}}"
)";

struct Bound {
  TempFolder folder;
  std::shared_ptr<const Tokenizer> tokenizer;
  Bound() {
    qft::test::write_byte_tokenizer(folder);
    tokenizer = Tokenizer::load(folder.path());
  }
  ChatTemplate bind(const std::string& yaml, const TemplateOptions& options = {}) const {
    return ChatTemplate(parse_template(yaml, "t.yaml"), tokenizer, options);
  }
  std::string text(const std::vector<std::int32_t>& ids) const { return tokenizer->decode(ids); }
};

Conversation one_turn(std::string answer) {
  Conversation c;
  c.prompt = {{Role::user, "q"}};
  c.responses = {{Role::assistant, std::move(answer)}};
  return c;
}

/// Returns a record's call message, as parsed by the message reader.
Conversation one_call(const std::string& text) {
  TextAndCalls read = read_call_text(text, "message 2");
  Conversation c = one_turn(read.text);
  c.responses.front().calls = std::move(read.calls);
  return c;
}

std::vector<Exchange> turns_of(const ChatTemplate& chat, const Conversation& conversation, bool last_only = false) {
  return chat.training_samples(conversation, {{}, last_only}).front();
}

TEST(TemplateFile, BuiltInsAreTheFilesInConfigs) {
  std::size_t files = 0;
  for (const auto& entry : fs::directory_iterator(fs::path(qft::test::kSourceDir) / "configs/templates")) {
    const TemplateSpec built_in = find_template(entry.path().stem());
    const TemplateSpec file = find_template(entry.path().string());
    EXPECT_EQ(built_in.name, entry.path().stem());
    EXPECT_EQ(built_in.hash(), file.hash()) << entry.path();
    ++files;
  }
  EXPECT_EQ(files, template_names().size());
}

TEST(TemplateFile, MistakesAreErrorsWithFileAndLine) {
  const std::pair<std::string, std::string> cases[] = {
      {"name: a\nuzer: x\n", "t.yaml:2: uzer: unknown key; a template has assistant"},
      {"name: a\nuser: \"{{contents}}\"\n", "t.yaml:2: user: unknown placeholder {{contents}}"},
      {"name: a\nuser: \"{{content}} {{content}}\"\n", "twice"},
      {"name: a\nuser: hello\n", "user has no {{content}}"},
      {"name: a\nprefix: \"{{content}}\"\n", "prefix"},
      {"name: a\nreplace_eos: true\n", "stop_words"},
      {"name: a\nreplace_eos: maybe\n", "t.yaml:2: replace_eos: expected true or false"},
      {"name: a\nstop_words: x\n", "t.yaml:2: stop_words: expected a list"},
      {"name: a\nthought_words: [x]\n", "two texts"},
      {"name: a\ntool_format: glm\n", "there is no 'glm'; the formats are default, llama3, mistral, qwen, qwen3_5"},
      {"name: a\nname: b\n", "given twice"},
      {"name: &n a\nsystem: *n\n", "t.yaml:1: YAML anchors and aliases"},
      {"user: \"{{content}}\"\n", "needs a name"},
      {"- a\n", "must map keys to texts"},
      {"name: [\n", "t.yaml:"},
  };
  for (const auto& [yaml, message] : cases) {
    SCOPED_TRACE(yaml);
    expect_error<ConfigError>([&] { parse_template(yaml, "t.yaml"); }, {message});
  }
}

TEST(TemplateSearch, FolderOfTheEnvironmentComesFirstAndUnknownNamesListAll) {
  TempFolder folder;
  folder.write("mine.yaml", kMarked);
  folder.write("qwen.yaml", "name: qwen\nuser: \"other {{content}}\"\n");
  ::setenv("QFT_TEMPLATES", folder.path().c_str(), 1);
  EXPECT_EQ(find_template("mine").name, "marked");
  EXPECT_EQ(find_template("qwen").user.front().before, "other ");
  expect_error<ConfigError>([] { find_template("qwem"); },
                            {"'qwem'", "mine", "qwen3_nothink", "vicuna, and for packs only deepseek3, gemma, "});
  ::unsetenv("QFT_TEMPLATES");
  EXPECT_EQ(find_template("qwen").origin, "built-in template qwen");
  expect_error<ConfigError>([] { find_template("./absent.yaml"); }, {"./absent.yaml", "no file"});
}

TEST(TemplateBinding, SpecialTokensMustBeAddedTokensOfTheTokenizer) {
  const Bound b;
  expect_error<ConfigError>([&] { ChatTemplate(find_template("llama3"), b.tokenizer); },
                            {"'llama3'", "<|end_header_id|>", "added tokens"});
  EXPECT_NO_THROW(ChatTemplate(find_template("qwen"), b.tokenizer));
}

TEST(TemplateBinding, TurnsJoinTheirPieces) {
  const Bound b;
  Conversation c = one_turn("a");
  c.system = "s";
  const std::vector<Exchange> turns = turns_of(b.bind(kMarked), c, false);
  ASSERT_EQ(turns.size(), 1u);
  EXPECT_EQ(b.text(turns[0].source), "[s]<q>");
  EXPECT_EQ(b.text(turns[0].target), "a<|end|>");
}

TEST(TemplateBinding, DefaultSystemCanBeReplacedAndRemoved) {
  const Bound b;
  const std::string yaml = std::string(kMarked) + "default_system: D\n";
  const auto source = [&](const TemplateOptions& o) { return b.text(turns_of(b.bind(yaml, o), one_turn("a"), false)[0].source); };
  EXPECT_EQ(source({}), "[D]<q>");
  EXPECT_EQ(source({.default_system = "E", .tool_format = {}}), "[E]<q>");
  EXPECT_EQ(source({.default_system = "", .tool_format = {}}), "<q>");
}

TEST(TemplateBinding, EndTokenIsTheStopWordWhereAsked) {
  const Bound b;
  const std::string stop = std::string(kMarked) + "stop_words: [\"<|im_end|>\"]\n";
  const ChatTemplate kept = b.bind(stop), replaced = b.bind(stop + "replace_eos: true\n");
  EXPECT_EQ(kept.eos_id(), b.tokenizer->token_to_id("<|end|>"));
  EXPECT_EQ(replaced.eos_id(), b.tokenizer->token_to_id("<|im_end|>"));
  EXPECT_EQ(kept.stop_token_ids().size(), 2u);
  EXPECT_EQ(replaced.stop_token_ids(), std::vector{*replaced.eos_id()});
  EXPECT_EQ(replaced.document_end(), "<|im_end|>");
}

TEST(TemplateBinding, HashFollowsWhatShapesTokens) {
  const Bound b;
  const std::string reasoning = std::string(kMarked) + "reasoning: true\n";
  EXPECT_EQ(b.bind(kMarked).hash(), b.bind(kMarked).hash());
  EXPECT_NE(b.bind(kMarked).hash(), b.bind(reasoning).hash());
  EXPECT_NE(b.bind(kMarked).hash(), b.bind(kMarked, {.default_system = "x", .tool_format = {}}).hash());
  EXPECT_NE(b.bind(kMarked).hash(), b.bind(kMarked, {.default_system = {}, .tool_format = "qwen"}).hash());
  // Thinking matters only for templates that reason.
  TemplateOptions off;
  off.enable_thinking = false;
  EXPECT_EQ(b.bind(kMarked).hash(), b.bind(kMarked, off).hash());
  EXPECT_NE(b.bind(reasoning).hash(), b.bind(reasoning, off).hash());
}

struct ThoughtCase {
  std::optional<bool> enable;
  std::string answer, source, target;
};

TEST(Thoughts, AreAddedToTheAnswerOrThePromptByEnableThinking) {
  const Bound b;
  const std::string empty = "<think>\n\n</think>\n\n", full = "<think>\nt\n</think>\n\n";
  const ThoughtCase cases[] = {
      {true, "a", "<q>", empty + "a<|end|>"},         {false, "a", "<q>" + empty, "a<|end|>"},
      {std::nullopt, "a", "<q>" + empty, "a<|end|>"}, {true, full + "a", "<q>", full + "a<|end|>"},
      {false, full + "a", "<q>" + empty, "a<|end|>"}, {std::nullopt, full + "a", "<q>", full + "a<|end|>"},
  };
  for (const ThoughtCase& c : cases) {
    TemplateOptions options;
    options.enable_thinking = c.enable;
    const ChatTemplate chat = b.bind(std::string(kMarked) + "reasoning: true\n", options);
    const Conversation conversation = one_turn(c.answer);
    for (const Exchange& turn :
         {turns_of(chat, conversation, false)[0], chat.encode_answer(conversation, conversation.responses[0])}) {
      EXPECT_EQ(b.text(turn.source), c.source);
      EXPECT_EQ(b.text(turn.target), c.target);
    }
  }
}

TEST(Thoughts, OfEarlierTurnsGoInPairsAndWithLastThoughtOnly) {
  const Bound b;
  Conversation c = one_turn("a");
  c.prompt = {{Role::user, "q"}, {Role::assistant, "<think>\nt\n</think>\n\nold"}, {Role::user, "r"}};
  const ChatTemplate chat = b.bind(std::string(kMarked) + "reasoning: true\n");
  EXPECT_EQ(b.text(turns_of(chat, c, true)[0].target), "old<|end|>");
  EXPECT_EQ(b.text(turns_of(chat, c, false)[0].target), "<think>\nt\n</think>\n\nold<|end|>");
  EXPECT_EQ(b.text(chat.encode_answer(c, c.responses[0]).source), "<q>old<|end|><r>");
  TemplateOptions keep;
  keep.preserve_thinking = true;
  EXPECT_EQ(b.text(b.bind(std::string(kMarked) + "reasoning: true\n", keep).encode_answer(c, c.responses[0]).source),
            "<q><think>\nt\n</think>\n\nold<|end|><r>");
}

TEST(Calls, AreWrittenInTheToolFormat) {
  const Bound b;
  const auto target = [&](const std::string& format, const std::string& call) {
    const ChatTemplate chat = b.bind(std::string(kMarked) + "tool_format: " + format + "\n");
    return b.text(turns_of(chat, one_call(call), false)[0].target);
  };
  const std::string call = R"({"arguments":{"x":1.0,"y":"é"},"name":"f"})";
  EXPECT_EQ(target("qwen", call),
            "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"x\": 1.0, \"y\": \"é\"}}\n</tool_call><|end|>");
  EXPECT_EQ(target("llama3", call), "{\"name\": \"f\", \"parameters\": {\"x\": 1.0, \"y\": \"é\"}}<|end|>");
  EXPECT_EQ(target("default", call), "Action: f\nAction Input: {\"x\": 1.0, \"y\": \"é\"}<|end|>");
  const std::string two = "[" + call + "," + R"({"name":"g","arguments":{}})" + "]";
  EXPECT_EQ(target("default", two), "Action: f\nAction Input: {\"x\": 1.0, \"y\": \"é\"}\nAction: g\nAction Input: {}<|end|>");
  EXPECT_EQ(target("default", "<think>\nt\n</think>\n\n" + call),
            "<think>\nt\n</think>\n\nAction: f\nAction Input: {\"x\": 1.0, \"y\": \"é\"}<|end|>");
}

TEST(Calls, BrokenJsonIsAnError) {
  const Bound b;
  const ChatTemplate chat = b.bind(kMarked);
  for (const char* call : {"{", "not json", "{\"name\": 1}", "[1]", "{\"name\": \"f\", \"arguments\": [1]}"})
    EXPECT_THROW(turns_of(chat, one_call(call), false), Error) << call;
  Conversation c = one_turn("a");
  for (const char* tools : {"{", "{\"a\": 1}", "[{\"name\": \"no parameters\"}]"}) {
    const auto describe = [&] {
      c.tools = read_tools(qft::parse_python_json(tools, "tools"), "tools");
      turns_of(chat, c, false);
    };
    EXPECT_THROW(describe(), Error) << tools;
  }
}

TEST(Tools, AreDescribedInTheSystemMessage) {
  const Bound b;
  Conversation c = one_turn("a");
  c.tools = qft::parse_python_json(
      R"([{"name":"f","description":"d","parameters":{"properties":{"p":{"type":"array","description":"e",)"
      R"("enum":["x","y"],"items":{"type":"string"}},"o":{}},"required":["p"]}}])",
      "tools");
  const std::string text = b.text(turns_of(b.bind(kMarked), c, false)[0].source);
  EXPECT_EQ(text.substr(0, text.find("Use the following")),
            "[You have access to the following tools:\n> Tool Name: f\nTool Description: d\nTool Args:\n"
            "  - p (array, required): e, should be one of [x, y], where each item should be string\n  - o (): \n\n");
  EXPECT_NE(text.find("one of [f])"), text.npos);
  c.tools = qft::Json::array();
  EXPECT_EQ(b.text(turns_of(b.bind(kMarked), c, false)[0].source), "<q>");
}

TEST(RenderPrompt, StopsWhereTheModelIsToSpeak) {
  const Bound b;
  const ChatTemplate chat = b.bind(kMarked);
  const std::vector<Message> messages = {{Role::user, "q"}, {Role::assistant, "a"}, {Role::user, "r"}};
  EXPECT_EQ(b.text(chat.render_prompt(messages, "s")), "[s]<q>a<|end|><r>");
  EXPECT_THROW(chat.render_prompt(std::span(messages).first(2)), Error);
  EXPECT_THROW(chat.render_prompt(std::vector<Message>{{Role::assistant, "a"}}), Error);
  EXPECT_THROW(chat.render_prompt(std::vector<Message>{}), Error);
}

TEST(RenderPrompt, PutsAnEmptyThoughtInFrontWhereThinkingIsOff) {
  const Bound b;
  TemplateOptions off;
  off.enable_thinking = false;
  const std::string yaml = std::string(kMarked) + "reasoning: true\n";
  const std::vector<Message> messages = {{Role::user, "q"}};
  EXPECT_EQ(b.text(b.bind(yaml).render_prompt(messages)), "<q>");
  EXPECT_EQ(b.text(b.bind(yaml, off).render_prompt(messages)), "<q><think>\n\n</think>\n\n");
}

}  // namespace
