// The first records of a file decide for all: later columns, messages and roles are read, or refused by name.
#include "fixture.h"

namespace {

using qft::Error;
using qft::test::encode_all;
using qft::test::expect_error;
using qft::test::SmallRun;

constexpr int kFirst = 64;

/// A file of deciding `first` records followed by another record.
struct LaterRun : SmallRun {
  std::string file = "d.jsonl";
  std::vector<std::string> last(const std::string& first, const std::string& later, int before = kFirst) {
    std::string text;
    for (int i = 0; i < before; ++i) text += first + "\n";
    return read(text + later + "\n");
  }
  /// Returns the texts of the last item's sequences.
  std::vector<std::string> read(const std::string& text) {
    config.data.dataset = {folder.write(file, text).string()};
    const auto items = encode_all(config).items;
    std::vector<std::string> texts;
    for (const auto& sequence : items.back().sequences) texts.push_back(this->text(sequence.ids));
    return texts;
  }
  void refuses(const std::string& first, const std::string& later, std::vector<std::string> parts) {
    SCOPED_TRACE(later);
    parts.push_back("d.jsonl:65: ");
    expect_error<Error>([&] { last(first, later); }, parts);
  }
};

bool has(const std::string& text, std::string_view part) {
  return text.find(part) != text.npos;
}

const std::string kMessages = R"({"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}]})";
const std::string kAlpaca = R"({"instruction": "q", "output": "a"})";
const std::string kQuery = R"({"query": "q", "response": "a"})";

std::string messages_with(const std::string& more) {
  return kMessages.substr(0, kMessages.size() - 1) + ", " + more + "}";
}

TEST(LaterRecords, OptionalColumnsAreReadWhereverTheyBegin) {
  LaterRun run;
  for (const int before : {1, 63, 64, 65, 300}) {
    const std::string text = run.last(kMessages, messages_with(R"("system": "Answer in French.")"), before).front();
    EXPECT_TRUE(has(text, "system\nAnswer in French.<|im_end|>")) << before << text;
  }
  const std::string tools = R"("tools": [{"name": "f", "description": "d", "parameters": {"properties": {}}}])";
  run.config.data.tool_format = "qwen";
  EXPECT_TRUE(has(run.last(kMessages, messages_with(tools)).front(), "<tools>"));
  EXPECT_TRUE(has(run.last(kAlpaca, R"({"instruction": "q", "input": "more", "output": "a"})").front(), "q\nmore<|im_end|>"));
  EXPECT_TRUE(has(run.last(kAlpaca, R"({"instruction": "q", "output": "a", "history": [["x", "y"]]})").front(), "x<|im_end|>"));
  EXPECT_TRUE(has(run.last(kQuery, R"({"query": "q", "response": "a", "system": "s"})").front(), "system\ns<|im_end|>"));
  EXPECT_TRUE(
      has(run.last(R"({"instruction": "q", "response": "a"})", R"({"instruction": "q", "input": "i", "response": "a"})").front(),
          "q\ni<|im_end|>"));
}

TEST(LaterRecords, AColumnThatStandsThereWithoutAValueNamesItself) {
  LaterRun run;
  EXPECT_TRUE(has(run.last(messages_with(R"("system_prompt": null)"), messages_with(R"("system_prompt": "s")")).front(),
                  "system\ns<|im_end|>"));
  EXPECT_TRUE(has(run.last(R"({"instruction": "q", "context": null, "output": "a"})",
                           R"({"instruction": "q", "context": "c", "output": "a"})")
                      .front(),
                  "q\nc<|im_end|>"));
  run.file = "d.csv";
  std::string text = "instruction,output,system_prompt\n";
  for (int i = 0; i < 100; ++i) text += "q,a,\n";
  EXPECT_TRUE(has(run.read(text + "q,a,s\n").front(), "system\ns<|im_end|>"));
}

TEST(LaterRecords, WeightsAreReadWhereverTheyBegin) {
  LaterRun run;
  std::string text;
  for (int i = 0; i < kFirst; ++i) text += kQuery + "\n";
  run.config.data.dataset = {run.folder.write("d.jsonl", text + R"({"query": "q", "response": "a", "weight": 0.5})").string()};
  const auto items = encode_all(run.config).items;
  EXPECT_EQ(items.back().sequences.front().span_weights, std::vector<float>{0.5F});
  run.refuses(kQuery, R"({"query": "q", "response": "a", "loss_scale": 0.5})", {"loss_scale: none of the first 64 records"});
  run.refuses(kQuery, R"({"query": "q", "response": "a", "weight": "12 kg"})", {"weight: "});
  EXPECT_EQ(
      run.last(R"({"query": "q", "response": "a", "weight": "9 kg"})", R"({"query": "q", "response": "a", "weight": "12 kg"})")
          .size(),
      1u);  // a column with another meaning from the first record on
}

TEST(LaterRecords, AColumnThatWouldHaveBeenReadOtherwiseIsRefusedByName) {
  LaterRun run;
  run.refuses(kMessages, messages_with(R"("images": ["x.png"])"),
              {"images: none of the first 64 records", "qft trains on text only"});
  run.refuses(kMessages, messages_with(R"("video": "x.mp4")"), {"video: none of the first"});
  run.refuses(kAlpaca, messages_with(R"("x": 1)"),
              {"messages: none of the first 64 records", "the columns read would be messages"});
  run.refuses(kMessages, messages_with(R"("system_prompt": "s")"), {"system_prompt: none of the first", "system_prompt"});
  run.refuses(kAlpaca, R"({"instruction": "q", "context": "c", "output": "a"})", {"context: none of the first"});
  run.refuses(R"({"question": "q", "answer": "a"})", R"({"query": "q", "answer": "a"})", {"query: "});
  run.refuses(kQuery, R"({"query": "q", "answer": "a"})", {"answer: the first 64 records use 'response' instead"});
  run.refuses(kAlpaca, R"({"question": "q", "output": "a"})", {"question: the first 64 records use 'instruction' instead"});
  run.config.finetuning.stage = "kto";
  run.refuses(R"({"query": "q", "response": "a", "label": true})",
              R"({"query": "q", "response": "a", "label": true, "kto_tag": false})", {"kto_tag: none of the first"});
  run.refuses(R"({"query": "q", "response": "a", "label": true})", R"({"query": "q", "response": "a", "label": "perhaps"})",
              {"label: expected true or false, got the text \"perhaps\""});
}

TEST(LaterRecords, OtherColumnsAreStillNotRead) {
  LaterRun run;
  for (const char* more : {R"("source": "web")", R"("images": [])", R"("images": null)", R"("label": 1)", R"("chosen": "c")",
                           R"("id": {"a": [1]})", R"("text": "t")", R"("system_prompt": null)"})
    EXPECT_FALSE(run.last(kMessages, messages_with(more)).empty()) << more;
  EXPECT_FALSE(run.last(kAlpaca, R"({"instruction": "q", "output": "a", "answer": "b", "question": "c", "problem": 3})").empty());
}

TEST(LaterRecords, MessagesOfTheOtherFormAreRefused) {
  LaterRun run;
  const std::string other = R"({"messages": [{"from": "user", "value": "q"}, {"from": "assistant", "value": "a"}]})";
  run.refuses(kMessages, other, {"messages: message 1 has the keys 'from', 'value'; the first records have role and content"});
  run.refuses(other, kMessages, {"messages: message 1 has the keys 'role', 'content'; the first records have from and value"});
  run.refuses(kMessages, R"({"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "value": "a"}]})",
              {"message 2"});
  run.refuses(R"({"messages": [{"human": "q", "assistant": "a"}]})", kMessages, {"the first records have human and assistant"});
  run.refuses(kMessages, R"({"messages": [{"human": "q", "assistant": "a"}]})", {"message 1 has the keys 'human', 'assistant'"});
  const std::string human = R"({"messages": [{"role": "human", "content": "q"}, {"role": "assistant", "content": "a"}]})";
  EXPECT_EQ(run.last(kMessages, human), run.last(kMessages, kMessages));  // any word for a role works
}

TEST(LaterRecords, RolesThatBeginLaterMayHaveAnyOfTheirWords) {
  LaterRun run;
  run.config.data.tool_format = "qwen";
  for (const char* result : {"tool", "tool_response", "observation"})
    for (const char* call : {"tool_call", "function_call"}) {
      const std::string later = fmt::format(
          R"({{"messages": [{{"role": "user", "content": "q"}}, {{"role": "{}", "content": "{{\"name\": \"f\", \"arguments\": {{}}}}"}}, )"
          R"({{"role": "{}", "content": "rain"}}, {{"role": "assistant", "content": "a"}}]}})",
          call, result);
      EXPECT_TRUE(has(run.last(kMessages, later).front(), "rain")) << later;
    }
}

}  // namespace
