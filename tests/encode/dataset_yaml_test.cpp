// Datasets described in YAML as in LLaMA-Factory's version 1, and its own record format.
#include "qft/core/error.h"
#include "qft/encode/record_converter.h"

#include "fixture.h"

namespace {

using qft::ConfigError;
using qft::Error;
using qft::encode::Conversation;
using qft::encode::DatasetSpec;
using qft::encode::Formatting;
using qft::encode::load_dataset_info;
using qft::encode::RecordConverter;
using qft::encode::Role;
using qft::test::expect_error;
using qft::test::TempFolder;

struct Described {
  TempFolder folder;
  std::string file;

  std::string named(const std::string& body) {
    file = folder.write("d.yaml", "d:\n" + body).string();
    return file + ":d";
  }
  DatasetSpec load(const std::string& body, std::string_view stage = "sft") {
    const std::string name = named(body);
    return load_dataset_info(folder.path(), {&name, 1}, {}, stage).front();
  }
  DatasetSpec load_records(const std::string& records, const std::string& converter, std::string_view stage = "sft") {
    const auto data = folder.write("d.jsonl", records + "\n").string();
    return load("  path: " + data + "\n  source: local\n" + converter, stage);
  }
  Conversation convert(const std::string& record, const std::string& converter, std::string_view stage = "sft") {
    const DatasetSpec spec = load_records(record, converter, stage);
    RecordConverter reader(spec, false);
    return std::get<Conversation>(reader.convert({.text = record}));
  }
  void refuses(const std::string& body, std::vector<std::string> parts) {
    SCOPED_TRACE(body);
    parts.push_back("d.yaml:2: d");
    expect_error<ConfigError>([&] { load(body); }, parts);
  }
};

TEST(DatasetYaml, AlpacaHasNothingBetweenInstructionAndInput) {
  Described d;
  const auto c = d.convert(R"({"instruction": "a", "input": "b", "output": "c", "system": "s"})", "  converter: alpaca\n");
  EXPECT_EQ(c.prompt.front().text, "ab");
  EXPECT_EQ(c.responses.front().text, "c");
  EXPECT_EQ(c.system, "s");
}

TEST(DatasetYaml, SharegptAndItsOptionalTools) {
  Described d;
  const auto c = d.convert(R"({"conversations": [{"from": "human", "value": "q"}, {"from": "gpt", "value": "a"}]})",
                           "  converter: sharegpt\n");
  EXPECT_EQ(c.prompt.front().text, "q");
  EXPECT_EQ(c.responses.front().text, "a");
  const DatasetSpec spec = d.load_records(R"({"conversations": []})", "  converter: sharegpt\n");
  EXPECT_EQ(spec.named_columns(), std::vector<std::string>{"conversations"});
}

TEST(DatasetYaml, PairsAreWholeConversations) {
  Described d;
  const auto c = d.convert(
      R"({"chosen": [{"role": "system", "content": "s"}, {"role": "user", "content": "q"}, {"role": "assistant", "content": "yes"}],
          "rejected": [{"role": "system", "content": "s"}, {"role": "user", "content": "q"}, {"role": "assistant", "content": "no"}]})",
      "  converter: pair\n", "dpo");
  ASSERT_EQ(c.responses.size(), 2U);
  EXPECT_EQ(c.system, "s");
  EXPECT_EQ(c.prompt.front().text, "q");
  EXPECT_EQ(c.responses[0].text, "yes");
  EXPECT_EQ(c.responses[1].text, "no");
}

TEST(DatasetYaml, OwnRecordsHaveBlocks) {
  Described d;
  const auto c = d.convert(
      R"({"messages": [{"role": "system", "content": [{"type": "text", "value": "s"}], "loss_weight": 0.0},
          {"role": "user", "content": [{"type": "text", "value": "1 + "}, {"type": "text", "value": "1"}]},
          {"role": "assistant", "content": [{"type": "tool_call", "value": "{\"name\": \"add\", \"arguments\": {}}"}]},
          {"role": "tool", "content": [{"type": "text", "value": "2"}]},
          {"role": "assistant", "content": [{"type": "text", "value": "two"}], "loss_weight": 1.0}]})",
      "");
  EXPECT_EQ(c.system, "s");
  ASSERT_EQ(c.prompt.size(), 3U);
  EXPECT_EQ(c.prompt[0].text, "1 + 1");
  EXPECT_EQ(c.prompt[1].calls, std::vector<qft::encode::Call>{{"add"}});
  EXPECT_EQ(c.prompt[2].role, Role::observation);
  EXPECT_EQ(c.responses.front().text, "two");
}

TEST(DatasetYaml, OwnPairs) {
  Described d;
  const auto side = [](const char* answer) {
    return std::string(R"([{"role": "user", "content": [{"type": "text", "value": "q"}]},
                           {"role": "assistant", "content": [{"type": "text", "value": ")") +
           answer + R"("}]}])";
  };
  const auto c = d.convert(R"({"chosen_messages": )" + side("yes") + R"(, "rejected_messages": )" + side("no") + "}", "", "dpo");
  ASSERT_EQ(c.responses.size(), 2U);
  EXPECT_EQ(c.responses[0].text, "yes");
  EXPECT_EQ(c.responses[1].text, "no");
}

TEST(DatasetYaml, BlocksThatAreNotReadAreNamed) {
  Described d;
  const std::string start = R"({"messages": [{"role": "user", "content": [{"type": "text", "value": "q"}]}, )";
  const std::pair<std::string, std::string> cases[] = {
      {R"({"role": "assistant", "content": [{"type": "image_url", "value": "x"}]}]})",
       "message 2: content: a block has the type 'image_url'; qft reads text"},
      {R"({"role": "assistant", "content": [{"type": "x"}]}]})", "a block has the type 'x'; qft reads text, thinking"},
      {R"({"role": "assistant", "content": [{"type": "text"}]}]})",
       "a block of type 'text' has none of the keys text, value; its keys are 'type'"},
      {R"({"role": "assistant", "content": [{"type": "text", "value": "a"}], "loss_weight": 0.5}]})",
       "message 2: loss_weight: expected 1, got 0.5"},
      {R"({"role": "assistant", "content": [{"type": "text", "value": "a"}, {"type": "tool_call", "value": "{}"}]}]})",
       "a function call needs a name"},
  };
  for (const auto& [end, part] : cases) {
    SCOPED_TRACE(part);
    expect_error<Error>([&] { d.convert(start + end, ""); }, {part});
  }
}

TEST(DatasetYaml, SizeDrawsRecordsAndOtherKeysAreNamed) {
  Described d;
  const DatasetSpec spec = d.load_records("{}", "  size: 7\n  split: train[:50%]\n  weight: 1.0\n  streaming: false\n");
  EXPECT_EQ(spec.num_samples, 7);
  EXPECT_EQ(spec.split.text(), "train[:50%]");
  EXPECT_EQ(spec.formatting, Formatting::blocks);
  const std::string path = "  path: " + d.folder.write("x.json", "[{}]").string() + "\n";
  d.refuses(path + "  source: local\n  weight: 2\n", {"weight is 2, which is not implemented"});
  d.refuses(path + "  source: local\n  streaming: true\n", {"streaming: version 1 does not train on streamed data"});
  d.refuses(path + "  source: s3\n", {"source 's3' is unknown; use local or hf_hub"});
  d.refuses(path + "  converter: x\n", {"converter 'x' is unknown; use alpaca, sharegpt or pair"});
  d.refuses("  source: local\n", {"has no path"});
  d.refuses("  path: [a]\n", {"path: expected one value"});
  expect_error<ConfigError>([&] { d.load(path + "  source: local\n  size: few\n"); }, {"num_samples: expected a whole number"});
}

TEST(DatasetYaml, NamesThatItDoesNotHave) {
  Described d;
  d.named("  path: x\n");
  const std::string name = d.file + ":e";
  expect_error<ConfigError>([&] { load_dataset_info(d.folder.path(), {&name, 1}); }, {"d.yaml has no 'e'; it has d"});
}

TEST(DatasetYaml, HubsAreNamedWhereNoFolderHasTheName) {
  Described d;
  const std::string name = d.named("  path: owner/name\n  split: train_prefs\n");
  const auto found = qft::encode::hub_datasets(d.folder.path(), {&name, 1});
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0].id, "owner/name");
  EXPECT_EQ(found[0].hub, "huggingface");
}

}  // namespace
