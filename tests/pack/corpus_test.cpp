// From records to items: learned tokens, cut samples, dropped records and their counts.
#include "qft/core/error.h"

#include "encode/fixture.h"

namespace {

using nlohmann::json;
using qft::ConfigError;
using qft::Error;
using namespace qft::encode;  // NOLINT: a test
using qft::test::EncodedCorpus;
using qft::test::expect_error;
using qft::test::SmallRun;

std::int64_t dropped(const EncodedCorpus& corpus, DropReason reason) {
  return corpus.counts[0].dropped[static_cast<std::size_t>(reason)];
}

std::string alpaca(const std::vector<std::string>& questions) {
  json list = json::array();
  for (const std::string& q : questions) list.push_back({{"instruction", q}, {"input", ""}, {"output", "A" + q}});
  return list.dump();
}

const json kSharegpt = {{"formatting", "sharegpt"}};
const json kOpenai = {{"formatting", "openai"},
                      {"columns", {{"messages", "messages"}, {"tools", "tools"}}},
                      {"tags",
                       {{"role_tag", "role"},
                        {"content_tag", "content"},
                        {"user_tag", "user"},
                        {"assistant_tag", "assistant"},
                        {"observation_tag", "tool"},
                        {"function_tag", "function"},
                        {"system_tag", "system"}}}};

TEST(FitTurn, SharesTheBudgetAsLlamaFactoryDoes) {
  using Pair = std::pair<std::int64_t, std::int64_t>;
  EXPECT_EQ(fit_exchange(10, 10, 100), (Pair{10, 10}));   // fits
  EXPECT_EQ(fit_exchange(100, 40, 100), (Pair{60, 40}));  // a short target is kept whole
  EXPECT_EQ(fit_exchange(40, 100, 100), (Pair{40, 60}));  // so is a short source
  EXPECT_EQ(fit_exchange(75, 150, 100), (Pair{34, 66}));  // in proportion, the target rounded down
  EXPECT_EQ(fit_exchange(100, 4, 8), (Pair{8, 0}));
}

TEST(Conversations, LearnEveryAnswerButNotTheQuestions) {
  SmallRun run;
  run.add("d", "d.json",
          R"([{"conversations": [{"from": "human", "value": "q"}, {"from": "gpt", "value": "a"},
    {"from": "human", "value": "r"}, {"from": "gpt", "value": "b"}]}])",
          kSharegpt);
  const EncodedCorpus all = run.encode();
  ASSERT_EQ(all.items.size(), 1u);
  EXPECT_EQ(run.text(all.items[0].sequences[0].ids),
            "<|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\na<|im_end|>\n"
            "<|im_start|>user\nr<|im_end|>\n<|im_start|>assistant\nb<|im_end|>\n");
  EXPECT_EQ(run.learned(all.items[0].sequences[0]), (std::vector<std::string>{"a<|im_end|>\n", "b<|im_end|>\n"}));

  run.config.data.mask_history = true;
  EXPECT_EQ(run.learned(run.encode().items[0].sequences[0]), (std::vector<std::string>{"b<|im_end|>\n"}));
  run.config.data.mask_history = false;
  run.config.data.train_on_prompt = true;
  EXPECT_EQ(run.learned(run.encode().items[0].sequences[0]).size(), 1u);
}

TEST(Conversations, MaskHistoryCutsTheEarliestTurns) {
  SmallRun run;
  run.add("d", "d.json",
          R"([{"conversations": [{"from": "human", "value": "first"}, {"from": "gpt", "value": "a"},
    {"from": "human", "value": "r"}, {"from": "gpt", "value": "b"}]}])",
          kSharegpt);
  run.config.data.cutoff_len = 30;
  run.config.data.mask_history = true;
  const EncodedCorpus cut = run.encode();
  EXPECT_EQ(cut.counts[0].truncated, 1);
  const std::string text = run.text(cut.items[0].sequences[0].ids);
  EXPECT_TRUE(text.ends_with("user\nr<|im_end|>\n<|im_start|>assistant\nb<|im_end|>\n")) << text;
  EXPECT_EQ(cut.items[0].sequences[0].ids.size(), 30u);
}

TEST(Alpaca, JoinsPromptAndQueryAndReadsHistoryAndSystem) {
  SmallRun run;
  run.add("d", "d.json", R"([{"p": "q", "i": "x", "o": "a", "s": "S", "h": [["h1", "g1"]]}, {"p": null, "i": "y", "o": "b"}])",
          {{"columns", {{"prompt", "p"}, {"query", "i"}, {"response", "o"}, {"system", "s"}, {"history", "h"}}}});
  const EncodedCorpus all = run.encode();
  ASSERT_EQ(all.items.size(), 2u);
  EXPECT_EQ(run.text(all.items[0].sequences[0].ids),
            "<|im_start|>system\nS<|im_end|>\n<|im_start|>user\nh1<|im_end|>\n<|im_start|>assistant\ng1<|im_end|>\n"
            "<|im_start|>user\nq\nx<|im_end|>\n<|im_start|>assistant\na<|im_end|>\n");
  EXPECT_EQ(run.text(all.items[1].sequences[0].ids), "<|im_start|>user\ny<|im_end|>\n<|im_start|>assistant\nb<|im_end|>\n");
}

TEST(Openai, ReadsCallsAndJoinsResults) {
  SmallRun run;
  run.add("d", "d.json",
          R"([{"messages": [{"role": "system", "content": "S"}, {"role": "user", "content": "q"},
    {"role": "assistant", "content": null, "tool_calls": [{"function": {"name": "f", "arguments": {"a": 1}}}]},
    {"role": "tool", "content": "r1"}, {"role": "tool", "content": "r2"}, {"role": "assistant", "content": "a"}]}])",
          kOpenai);
  const EncodedCorpus all = run.encode();
  ASSERT_EQ(all.items.size(), 1u);
  EXPECT_EQ(run.text(all.items[0].sequences[0].ids),
            "<|im_start|>system\nS\ndetailed thinking off<|im_end|>\n<|im_start|>user\nq<|im_end|>\n"
            "<|im_start|>assistant\nAction: f\nAction Input: {\"a\": 1}<|im_end|>\n"
            "<|im_start|>tool\nr1\n</tool_response>\n<tool_response>\nr2<|im_end|>\n"
            "<|im_start|>assistant\na<|im_end|>\n");
}

TEST(Pairs, ShareTheQuestion) {
  SmallRun run;
  run.config.finetuning.stage = "dpo";
  run.add("d", "d.json", R"([{"instruction": "q", "input": "", "chosen": "good", "rejected": "b"}])",
          {{"ranking", true},
           {"columns", {{"prompt", "instruction"}, {"query", "input"}, {"chosen", "chosen"}, {"rejected", "rejected"}}}});
  const EncodedCorpus all = run.encode();
  ASSERT_EQ(all.items.size(), 1u);
  ASSERT_EQ(all.items[0].sequences.size(), 2u);
  EXPECT_EQ(run.learned(all.items[0].sequences[0]), (std::vector<std::string>{"good<|im_end|>\n"}));
  EXPECT_EQ(run.learned(all.items[0].sequences[1]), (std::vector<std::string>{"b<|im_end|>\n"}));
}

TEST(Documents, AreCutAloneOrJoinedByChunk) {
  SmallRun run;
  run.config.finetuning.stage = "pt";
  run.add("d", "d.txt", "abcdef\n\ngh\nij\n", {{"columns", {{"prompt", "text"}}}});
  run.config.data.cutoff_len = 4;
  run.config.data.packing = false;
  const EncodedCorpus alone = run.encode();
  ASSERT_EQ(alone.items.size(), 4u);
  EXPECT_EQ(run.text(alone.items[1].sequences[0].ids), "<|im_end|>");  // from the empty line
  EXPECT_EQ(alone.counts[0].truncated, 1);
  EXPECT_EQ(run.text(alone.items[0].sequences[0].ids), "abcd");
  EXPECT_EQ(run.text(alone.items[3].sequences[0].ids), "ij<|im_end|>");

  run.config.data.packing.reset();
  run.config.data.preprocessing_batch_size = 3;
  const EncodedCorpus joined = run.encode();  // abcdef. . gh. | ij.
  ASSERT_EQ(joined.items.size(), 2u);
  EXPECT_EQ(run.text(joined.items[1].sequences[0].ids), "ef<|im_end|><|im_end|>");
  EXPECT_EQ(joined.items[1].source_index, 0);
  EXPECT_EQ(joined.counts[0].records, 4);

  run.config.given["packing"] = "test";
  run.config.data.packing = true;
  EXPECT_EQ(run.encode().items[0].sequences[0].ids.size(), 3u);
}

TEST(Documents, StartWithTheFirstTokenWhereTheTokenizerSaysSo) {
  SmallRun run;
  qft::test::write_byte_tokenizer(run.folder, {{"add_bos_token", true}});
  run.config.finetuning.stage = "pt";
  run.add("d", "d.txt", "abcdef\n", {{"columns", {{"prompt", "text"}}}});
  run.config.data.packing = false;
  EXPECT_EQ(run.text(run.encode().items[0].sequences[0].ids), "<|im_start|>abcdef<|im_end|>");
  run.config.data.packing.reset();
  run.config.data.cutoff_len = 3;
  EXPECT_EQ(run.text(run.encode().items[1].sequences[0].ids), "<|im_start|>ef");
}

TEST(Dropping, CountsByReason) {
  SmallRun run;
  run.add("d", "d.json",
          R"([{"conversations": [{"from": "human", "value": "q"}, {"from": "gpt", "value": "a"}]},
    {"conversations": [{"from": "gpt", "value": "q"}, {"from": "gpt", "value": "a"}]},
    {"conversations": [{"from": "human", "value": "q"}]}, {"conversations": []},
    {"conversations": [{"from": "human", "value": "q"}, {"from": "clerk", "value": "a"}]}])",
          kSharegpt);
  const EncodedCorpus all = run.encode();
  EXPECT_EQ(all.items.size(), 1u);
  EXPECT_EQ(dropped(all, DropReason::turns), 3);
  EXPECT_EQ(dropped(all, DropReason::role), 1);
  EXPECT_EQ(all.counts[0].records, 5);
}

/// Keeps the reasons for records that make no item.
struct KeepReasons : qft::test::KeepItems {
  std::vector<std::string> reasons;
  void drop(std::int32_t, DropReason, const std::string& what) override { reasons.push_back(what); }
};

TEST(Dropping, SaysWhichMessageOfWhichRecordAndWhoNamesTheRoles) {
  SmallRun run;
  run.add("d", "d.jsonl",
          R"({"conversations": [{"from": "human", "value": "q"}, {"from": "gpt", "value": "a"}]}
{"conversations": [{"from": "clerk", "value": "q"}, {"from": "gpt", "value": "a"}]}
{"conversations": [{"from": "system", "value": "s"}, {"from": "gpt", "value": "a"}]}
{"conversations": [{"role": "human", "value": "q"}]}
{"conversations": [{"from": "human", "value": "q"}]}
{"conversations": [{"from": "human", "value": "q"}, {"from": "system", "value": "s"}]})",
          kSharegpt);
  run.add("e", "e.jsonl", R"({"messages": [{"role": "user", "content": "q"}, {"role": "clerk", "content": "a"}]})",
          {{"formatting", "sharegpt"},
           {"columns", {{"messages", "messages"}}},
           {"tags", {{"role_tag", "role"}, {"content_tag", "content"}, {"user_tag", "user"}, {"assistant_tag", "assistant"}}}});
  KeepReasons kept;
  const auto corpus = run.open();
  for (std::size_t c = 0; c < corpus->num_chunks(); ++c) corpus->encode_chunk(c, kept);
  const std::string info = (run.folder.path() / "dataset_info.json").string();
  const std::vector<std::string> expected = {
      "d.jsonl:2: message 1 has the role 'clerk'; the roles are human, gpt, observation, function_call, system (the defaults: " +
          info + ": d has no tags)",
      "d.jsonl:3: message 2 is an answer, but a question is expected",
      "d.jsonl:4: message 1 has no 'from' (role_tag, from the defaults: " + info +
          ": d has no tags); its keys are 'role', 'value'",
      "d.jsonl:5: it ends with a question",
      "d.jsonl:6: message 2 has the role 'system', which only the first message may have",
      "e.jsonl:1: message 2 has the role 'clerk'; the roles are user, assistant (tags in " + info +
          ": e). Name it in dataset_info.json under tags"};
  ASSERT_EQ(kept.reasons.size(), expected.size());
  for (std::size_t i = 0; i < expected.size(); ++i)
    EXPECT_NE(kept.reasons[i].find(expected[i]), std::string::npos) << kept.reasons[i] << "\n" << expected[i];
}

TEST(Keys, ThatNoRecordHasAreNamedWithThoseThatAreThere) {
  const std::string line = R"({"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}]})";
  const json columns = {{"messages", "messages"}};
  const std::tuple<json, std::vector<std::string>> cases[] = {
      {{{"formatting", "sharegpt"}},
       {"dataset 'd': no record of ", "d.jsonl has the column 'conversations' (from the defaults: ",
        "dataset_info.json: d has no columns). The columns are 'messages'"}},
      {{{"formatting", "sharegpt"}, {"columns", columns}},
       {"no message in ", "has the key 'from' (role_tag, from the defaults: ", "Messages have 'role', 'content'", "under tags"}},
      {{{"formatting", "openai"}, {"columns", columns}, {"tags", {{"role_tag", "role"}, {"content_tag", "text"}}}},
       {"has the key 'text' (content_tag, from tags in ", "dataset_info.json: d)", "Messages have 'role', 'content'"}},
  };
  for (const auto& [entry, parts] : cases) {
    SmallRun run;
    run.add("d", "d.jsonl", line + "\n" + line + "\n", entry);
    expect_error<qft::ConfigError>([&] { run.encode(); }, parts);
  }
}

TEST(Files, ThatHoldNoTextAreNotTakenForBrokenRecords) {
  const std::string pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 9\n";
  for (const std::string file : {"d.json", "d.jsonl", "d.txt"}) {
    SmallRun run;
    run.add("d", file, pointer);
    expect_error<Error>([&] { run.encode(); }, {file + "' is a Git LFS pointer, not the file itself: run 'git lfs pull'"});
  }
  SmallRun run;
  run.add("d", "d.parquet", pointer);
  expect_error<Error>([&] { run.encode(); }, {"d.parquet' is a Git LFS pointer"});
  SmallRun other;
  other.add("d", "d.json", alpaca({"q", "a"}));
  for (const std::string file : {"tokenizer.json", "tokenizer_config.json"}) {
    qft::test::write_byte_tokenizer(other.folder);
    other.folder.write(file, pointer);
    expect_error<Error>([&] { other.encode(); }, {file + "' is a Git LFS pointer"});
    other.folder.write(file, "{\n\"a\": 1,\n}");
    expect_error<Error>([&] { other.encode(); }, {file + " is not valid JSON: line 2, column 7: a comma before '}': remove it"});
  }
}

TEST(Dropping, KeepsSamplesWhoseAnswersWereCutAway) {
  SmallRun run;
  run.add("d", "d.json", alpaca({std::string(100, 'x'), "y"}));
  run.config.data.cutoff_len = 1;
  const EncodedCorpus all = run.encode();
  ASSERT_EQ(all.items.size(), 2u);
  for (const auto& item : all.items) EXPECT_EQ(item.sequences[0].num_labels(), 0);
}

TEST(Dropping, MissingAnswersAreCounted) {
  SmallRun run;
  run.add("d", "d.json",
          R"([{"instruction": "q", "input": "", "output": null}, {"instruction": "q", "input": ""},
    {"instruction": "q", "input": "", "output": ""}])");
  const EncodedCorpus all = run.encode();
  EXPECT_EQ(dropped(all, DropReason::no_answer), 2);
  EXPECT_EQ(dropped(all, DropReason::empty_answer), 1);  // would teach the model to say nothing
  EXPECT_EQ(all.items.size(), 0u);
}

TEST(BrokenRecords, StopWithFileAndLineOrAreSkippedAndCounted) {
  const std::pair<const char*, const char*> cases[] = {
      {"{\"instruction\": ", "invalid JSON"},
      {"[1]", "expected an object, got a list"},
      {R"({"instruction": 5, "input": "", "output": ""})", "instruction: expected a text, got the number 5: put it in quotes"},
      {R"({"instruction": "q", "input": "", "output": 42})", "output: expected a text, got the number 42: put it in quotes"},
      {R"({"instruction": "q", "input": "", "output": 1e999})", "output: expected a text, got the number Infinity"},
      {R"({"instruction": "q", "input": "", "output": true})", "output: expected a text, got true: put it in quotes"},
      {R"({"instruction": "q", "input": "", "output": ["a"]})", "output: expected a text, got a list"},
      {R"({"instruction": "q", "input": "", "output": "a",})", "invalid JSON at byte 48: a comma before '}': remove it"},
      {R"({"instruction": "q", "input": "", "output": "\ud83d"})", "byte 46: \\ud83d is one half of a surrogate pair"},
      {"{\"instruction\": \"\xFF\", \"input\": \"\", \"output\": \"\"}", "invalid JSON"},
      {R"({"instruction": "q", "input": "", "output": "a"} x)", "invalid JSON"},
  };
  for (const auto& [line, message] : cases) {
    SCOPED_TRACE(line);
    SmallRun run;
    const std::string good = R"({"instruction": "q", "input": "", "output": "a"})";
    run.add("d", "d.jsonl", good + "\n\n" + line + "\n" + good + "\n");
    expect_error<Error>([&] { run.encode(); }, {"d.jsonl:3: ", message, "on_error"});
    run.config.data.on_error = "skip";
    const EncodedCorpus all = run.encode();
    EXPECT_EQ(all.items.size(), 2u);
    EXPECT_EQ(dropped(all, DropReason::unreadable), 1);
  }
}

TEST(BrokenRecords, InAnArrayOnOneLineHaveANumberAndAByte) {
  SmallRun run;
  std::string array = "[";
  for (int i = 1; i <= 16; ++i) array += R"({"instruction": "q", "input": "", "output": "a"}, )";
  run.add("d", "d.json", array + R"({"instruction": "q", "input": "", "output": 42}])");
  expect_error<Error>([&] { run.encode(); }, {"d.json:1: record 17, byte 802: output: expected a text, got the number 42"});
}

TEST(BrokenRecords, AnswersOfOtherTypesDoNotMatterToDocuments) {
  SmallRun run;
  run.config.finetuning.stage = "pt";
  run.config.data.packing = false;
  run.add("d", "d.json", R"([{"instruction": "q", "input": "", "output": 42}])");
  EXPECT_EQ(run.encode().items.size(), 1u);
}

// Nested as a list of the record, as JSON in a text, and in a call.
TEST(BrokenRecords, NestedBeyondTheStackAreRecordErrors) {
  const std::string deep = std::string(200'000, '[') + std::string(200'000, ']');
  const std::string cases[] = {
      R"({"instruction": "q", "input": "", "output": "a", "tools": ")" + deep + "\"}",
      R"({"instruction": "q", "input": "", "output": "a", "tools": )" + deep + "}",
  };
  for (const std::string& line : cases) {
    SmallRun run;
    const json columns = {
        {"columns", {{"prompt", "instruction"}, {"query", "input"}, {"response", "output"}, {"tools", "tools"}}}};
    run.add("d", "d.jsonl",
            R"({"instruction": "q", "input": "", "output": "a", "tools": ""})"
            "\n" +
                line + "\n",
            columns);
    expect_error<Error>([&] { run.encode(); }, {"d.jsonl:2: ", "nested more than 1024 deep"});
    run.config.data.on_error = "skip";
    EXPECT_EQ(dropped(run.encode(), DropReason::unreadable), 1);
  }
  SmallRun run;
  const json call = {{"conversations",
                      {{{"from", "human"}, {"value", "q"}},
                       {{"from", "function_call"}, {"value", R"({"name": "f", "arguments": )" + deep + "}"}}}}};
  run.add("d", "d.json", json::array({call}).dump(), kSharegpt);
  expect_error<Error>([&] { run.encode(); }, {"message 2: value: nested more than 1024 deep"});
}

TEST(BrokenRecords, OfConversationsNameTheKey) {
  const std::pair<const char*, const char*> cases[] = {
      {R"({"conversations": 5})", "conversations: expected a list"},
      {R"({"conversations": null})", "conversations: expected a list, got nothing"},
      {R"({"conversations": [5]})", "message 1: expected an object"},
      {R"({"conversations": [{"from": "human", "value": null}]})", "value: expected a text"},
      {R"({"conversations": [{"from": 1, "value": "x"}]})", "from: expected a text"},
  };
  for (const auto& [record, message] : cases) {
    SCOPED_TRACE(record);
    SmallRun run;
    run.add("d", "d.json", std::string("[") + record + "]", kSharegpt);
    expect_error<Error>([&] { run.encode(); }, {"d.json:1: ", message});
  }
}

TEST(Columns, MissingOnesAreNamedWithThoseThatAreThere) {
  SmallRun run;
  run.add("d", "d.json", R"([{"question": "q", "output": "a"}, {"extra": 1}])");
  expect_error<ConfigError>([&] { run.open(); },
                            {"dataset 'd'", "d.json", "has the column 'instruction'", "'question', 'output', 'extra'"});
}

TEST(Columns, MayBeMissingFromSomeRecords) {
  SmallRun run;
  run.add("d", "d.json", R"([{"instruction": "q", "output": "a"}, {"instruction": "r", "input": "i", "output": "b"}])");
  EXPECT_EQ(run.encode().items.size(), 2u);
}

TEST(Stages, TakeTheDatasetsOfTheirKind) {
  SmallRun run;
  run.add("d", "d.json", alpaca({"q"}));
  run.config.finetuning.stage = "dpo";
  expect_error<ConfigError>([&] { run.open(); }, {"'d'", "no preference pairs", "dpo"});
  run.config.finetuning.stage = "sft";
  run.config.data.template_name.clear();
  expect_error<ConfigError>([&] { run.open(); }, {"template is not given", "qwen3"});
  run.config.data.dataset.clear();
  expect_error<ConfigError>([&] { run.open(); }, {"dataset is not given"});
}

TEST(Templates, OfADatasetRenderItsSamplesAlone) {
  const auto records = [](const std::string& of) {
    return json::array({{{"instruction", "q" + of}, {"output", "a" + of}}, {{"instruction", "r" + of}, {"output", "b" + of}}})
        .dump();
  };
  const auto only = [&](const char* name, const char* chat) {
    SmallRun run;
    run.add(name, "d.json", records(name));
    run.config.data.template_name = chat;
    return run.encode();
  };
  SmallRun run;
  run.add("mine", "m.json", records("mine"));
  run.add("other", "o.json", records("other"), {{"template", "vicuna"}});
  run.add("same", "s.json", records("same"), {{"template", "chatml"}});
  const EncodedCorpus mixed = run.encode();
  std::vector<EncodedItem> expected;
  for (const auto& [name, chat] : {std::pair("mine", "chatml"), std::pair("other", "vicuna"), std::pair("same", "chatml")})
    for (EncodedItem& item : only(name, chat).items) expected.push_back(std::move(item));
  ASSERT_EQ(mixed.items.size(), expected.size());
  for (std::size_t i = 0; i < expected.size(); ++i) {
    EXPECT_EQ(mixed.items[i].sequences.at(0).ids, expected[i].sequences.at(0).ids) << i;
    EXPECT_EQ(run.learned(mixed.items[i].sequences[0]), run.learned(expected[i].sequences[0])) << i;
  }
  EXPECT_NE(run.text(mixed.items[2].sequences[0].ids).find("USER: qother"), std::string::npos);

  // The attributes contain the template: another template gives another pack.
  const json described = run.open()->attributes().options["datasets"];
  EXPECT_FALSE(described[0].contains("template"));
  EXPECT_EQ(described[1]["template"]["name"], "vicuna");
  run.info["other"]["template"] = "alpaca";
  EXPECT_NE(run.open()->attributes().options["datasets"], described);
  run.info["other"]["template"] = "chatmll";
  expect_error<ConfigError>([&] { run.open(); }, {"dataset 'other' has the template 'chatmll'"});
}

TEST(Origins, CarryDatasetIndexCategoryAndTags) {
  SmallRun run;
  run.add("a", "a.json", alpaca({"q"}));
  run.add("b", "b.json", R"([{"i": "q", "o": "a", "hard": 3, "src": "web"}, {"i": "r", "o": "b"}])",
          {{"columns", {{"prompt", "i"}, {"response", "o"}, {"category", "hard"}, {"tags", {"src"}}}}});
  const EncodedCorpus all = run.encode();
  ASSERT_EQ(all.items.size(), 3u);
  EXPECT_EQ(all.items[0].category, "a");
  EXPECT_EQ(all.items[1].category, "3");
  EXPECT_EQ(all.items[1].dataset, 1);
  EXPECT_EQ(all.items[1].tags, (std::vector<std::pair<std::string, std::string>>{{"src", "web"}}));
  EXPECT_EQ(all.items[2].category, "b");
  EXPECT_EQ(all.items[2].source_index, 1);
  EXPECT_TRUE(all.items[2].tags.empty());
}

TEST(Chunks, DoNotChangeTheItems) {
  SmallRun run;
  std::vector<std::string> questions;
  for (int i = 0; i < 25; ++i) questions.push_back(std::to_string(i));
  run.add("a", "a.json", alpaca(questions));
  run.add("b", "b.json", alpaca({"x", "y"}));
  const EncodedCorpus whole = run.encode();
  run.config.data.preprocessing_batch_size = 4;
  run.config.given["preprocessing_batch_size"] = "test";
  const auto corpus = run.open();
  EXPECT_EQ(corpus->num_chunks(), 7u);
  const EncodedCorpus parts = qft::test::encode_all(*corpus);
  ASSERT_EQ(parts.items.size(), whole.items.size());
  for (std::size_t i = 0; i < whole.items.size(); ++i)
    EXPECT_EQ(parts.items[i].sequences[0].ids, whole.items[i].sequences[0].ids);
}

TEST(Attributes, ChangeWithEveryInput) {
  SmallRun run;
  run.add("a", "a.json", alpaca({"q", "r", "s"}));
  const auto fingerprint = [&] {
    const auto corpus = run.open();
    return corpus->attributes().fingerprint();
  };
  std::vector<std::string> seen = {fingerprint()};
  EXPECT_EQ(fingerprint(), seen[0]);
  const auto differs = [&](const char* what) {
    const std::string now = fingerprint();
    EXPECT_EQ(std::count(seen.begin(), seen.end(), now), 0) << what;
    seen.push_back(now);
  };
  run.config.data.cutoff_len = 100;
  differs("cutoff_len");
  run.config.data.mask_history = true;
  differs("mask_history");
  run.config.data.max_samples = 2;
  differs("max_samples");
  run.config.data.default_system = "x";
  differs("default_system");
  run.info["a"]["columns"] = {{"prompt", "instruction"}, {"response", "output"}};
  differs("columns");
  run.folder.write("a.json", alpaca({"q", "r", "t"}));
  differs("contents");
  qft::test::write_byte_tokenizer(run.folder, {{"eos_token", "<|im_end|>"}});
  differs("tokenizer");
}

}  // namespace
