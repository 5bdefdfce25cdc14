// Datasets given as files and folders: the format is guessed from the records.
#include "fixture.h"

namespace {

using nlohmann::json;
using qft::ConfigError;
using qft::Error;
using qft::test::encode_all;
using qft::test::expect_error;
using qft::test::SmallRun;

/// A run with a path as its only dataset.
struct PathRun : SmallRun {
  std::string path(const std::string& name) const { return (folder.path() / name).string(); }
  qft::test::EncodedCorpus read(const std::string& name) {
    config.data.dataset = {path(name)};
    return encode_all(config);
  }
  std::vector<std::string> answers(const std::string& file, std::string_view text) {
    folder.write(file, text);
    std::vector<std::string> all;
    for (const auto& item : read(file).items)
      for (const std::string& part : learned(item.sequences.front())) all.push_back(part);
    return all;
  }
};

using Texts = std::vector<std::string>;

TEST(DatasetPaths, FormatsAreToldFromTheRecords) {
  PathRun run;
  EXPECT_EQ(run.answers("alpaca.json", R"([{"instruction": "q", "input": "", "output": "a"}])"), Texts{"a<|im_end|>\n"});
  EXPECT_EQ(run.answers("query.jsonl", R"({"query": "q", "response": "a", "history": [["x", "y"]], "system": "s"})"),
            (Texts{"y<|im_end|>\n", "a<|im_end|>\n"}));
  EXPECT_EQ(run.answers("dolly.jsonl", R"({"instruction": "q", "context": "c", "response": "a", "category": "x"})"),
            Texts{"a<|im_end|>\n"});
  EXPECT_EQ(run.answers("question.jsonl", R"({"question": "q", "answer": "a"})"), Texts{"a<|im_end|>\n"});
  EXPECT_EQ(run.answers("prompt.jsonl", R"({"prompt": "q", "completion": "a"})"), Texts{"a<|im_end|>\n"});
  EXPECT_EQ(
      run.answers(
          "messages.jsonl",
          R"({"messages": [{"role": "system", "content": "s"}, {"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}]})"),
      Texts{"a<|im_end|>\n"});
  EXPECT_EQ(run.answers("sharegpt.json",
                        "\xEF\xBB\xBF"
                        R"([{"conversations": [{"from": "human", "value": "q"}, {"from": "gpt", "value": "a"}]}])"),
            Texts{"a<|im_end|>\n"});
  EXPECT_EQ(
      run.answers("turns.jsonl",
                  R"({"system": "s", "conversation": [{"human": "q", "assistant": "a"}, {"human": "r", "assistant": "b"}]})"),
      (Texts{"a<|im_end|>\n", "b<|im_end|>\n"}));
}

TEST(DatasetPaths, TheContextOfAnInstructionIsItsInput) {
  PathRun run;
  run.folder.write("dolly.jsonl",
                   R"({"instruction": "Who?", "context": "Ada wrote it.", "response": "Ada", "category": "closed_qa"})");
  testing::internal::CaptureStderr();
  const auto items = run.read("dolly.jsonl").items;
  EXPECT_NE(testing::internal::GetCapturedStderr().find("reads instruction, context, response; not read: category"),
            std::string::npos);
  EXPECT_NE(run.text(items.front().sequences.front().ids).find("Who?\nAda wrote it."), std::string::npos);
}

TEST(DatasetPaths, ASampleIsDrawnBehindTheMark) {
  PathRun run;
  std::string text;
  for (int i = 0; i < 10; ++i) text += json{{"query", std::to_string(i)}, {"response", "a"}}.dump() + "\n";
  run.folder.write("d.jsonl", text);
  EXPECT_EQ(run.read("d.jsonl#3").items.size(), 3u);
  EXPECT_EQ(run.read("d.jsonl#25").items.size(), 25u);  // more than exist: some repeat
  run.folder.write("odd#1.jsonl", text);
  EXPECT_EQ(run.read("odd#1.jsonl").items.size(), 10u);
}

TEST(DatasetPaths, FoldersGiveTheirTrainingFiles) {
  PathRun run;
  const std::string line = R"({"query": "q", "response": "a"})"
                           "\n";
  run.folder.write("repo/README.md", "text");
  run.folder.write("repo/.git/x.jsonl", line);
  run.folder.write("repo/dataset_infos.json", "{}");
  run.folder.write("repo/data/train-0.jsonl", line + line);
  run.folder.write("repo/data/test.jsonl", line);
  std::filesystem::create_symlink("loop", run.folder.path() / "repo/loop");  // not a file, and opening it fails
  EXPECT_EQ(run.read("repo").items.size(), 2u);
  run.folder.write("plain/a.jsonl", line);
  run.folder.write("plain/b.jsonl", line);
  EXPECT_EQ(run.read("plain").items.size(), 2u);
}

TEST(DatasetPaths, EntriesOfDatasetInfoComeFirstAndStandBesidePaths) {
  PathRun run;
  run.add("named", "named.json", R"([{"instruction": "q", "output": "a"}])");
  run.folder.write("d.jsonl", R"({"query": "q", "response": "b"})");
  run.config.data.dataset.push_back(run.path("d.jsonl"));
  EXPECT_EQ(run.encode().items.size(), 2u);
}

TEST(DatasetPaths, MistakesNameFileAndColumns) {
  PathRun run;
  const auto refuses = [&](const std::string& file, std::string_view text, std::vector<std::string> parts) {
    SCOPED_TRACE(file);
    run.folder.write(file, text);
    expect_error<ConfigError>([&] { run.read(file); }, parts);
  };
  refuses("x.jsonl", R"({"a": 1, "b": "c"})", {"x.jsonl", "columns a, b", "query and response"});
  refuses("media.jsonl", R"({"query": "q", "response": "a", "images": ["x.png"]})", {"media.jsonl", "'images'", "text only"});
  refuses("role.jsonl", R"({"messages": [{"role": "clerk", "content": "q"}]})",
          {"role 'clerk'", "observation or tool_response or tool or function (their results)", "name 'clerk' there under tags"});
  refuses("keys.jsonl", R"({"messages": [{"speaker": "user", "text": "q"}]})",
          {"keys.jsonl:1: messages have speaker, text", "role_tag and content_tag"});
  refuses("weights.jsonl", R"({"query": "q", "response": "a", "weight": 2, "loss_scale": 1})",
          {"'weight'", "'loss_scale'", "remove one"});
  refuses("name.jsonl", R"({"query": "q", "response": "I am {{NAME}}"})", {"{{NAME}}", "sed"});
  refuses("text.jsonl", R"({"text": "t"})", {"stage sft learns answers"});
  refuses("table.tsv", "a\tb\n", {"table.tsv is not a file type that qft reads (.jsonl, .json, .parquet", "JSON lines"});
  run.folder.write("many/a.jsonl", R"({"messages": [{"role": "user", "content": "q"}]})");
  run.folder.write("many/b.jsonl", R"({"messages": [{"role": "clerk", "content": "q"}]})");
  expect_error<ConfigError>([&] { run.read("many"); }, {"b.jsonl:1: a message has the role 'clerk'"});
  run.folder.write("pointer.parquet", "version https://git-lfs.github.com/spec/v1\n");
  expect_error<Error>([&] { run.read("pointer.parquet"); }, {"pointer.parquet' is a Git LFS pointer"});
  run.folder.write("only/data.tsv", "x");
  expect_error<ConfigError>([&] { run.read("only"); }, {"no .jsonl", "data.tsv"});
  run.config.data.dataset = {"AI-ModelScope/nowhere#5"};
  expect_error<ConfigError>([&] { run.open(); }, {"AI-ModelScope/nowhere", "qft fetch --dataset AI-ModelScope/nowhere"});
  run.config.data.dataset = {run.path("x.jsonl") + ":part"};
  expect_error<ConfigError>([&] { run.open(); }, {"':part' names a part of a hub dataset"});
}

TEST(DatasetPaths, RecordsThatCannotBeReadAreNotTakenForAnUnknownFormat) {
  PathRun run;
  const auto refuses = [&](const std::string& file, std::string_view text, std::vector<std::string> parts) {
    SCOPED_TRACE(file);
    run.folder.write(file, text);
    expect_error<qft::Error>([&] { run.read(file); }, parts);
  };
  refuses("quotes.jsonl", "{'query': 'q', 'response': 'a'}\n", {"quotes.jsonl:1: a record: invalid JSON"});
  refuses("newline.json", "[{\"query\": \"q\nr\", \"response\": \"a\"}]",
          {"newline.json:1: record 1, byte 2: a record: invalid JSON"});
  refuses("latin.json", "[{\"query\": \"q\", \"response\": \"\xE9\"}]", {"latin.json:1: record 1, byte 2: a record"});
  refuses("pretty.jsonl", "{\n  \"query\": \"q\"\n}\n", {"pretty.jsonl:1: a record: invalid JSON"});
  refuses("utf16.jsonl", std::string_view("\xFF\xFE{\0}\0\n\0", 8), {"utf16.jsonl' is UTF-16: save it as UTF-8"});
  refuses("gzip.jsonl", "\x1F\x8B\x08 text", {"gzip.jsonl' is compressed: unpack it first"});
  refuses("empty.json", "", {"empty.json holds no record"});
  refuses("blank.jsonl", "\n \n", {"blank.jsonl holds no record"});
  refuses("none.json", "[]", {"none.json holds no record"});
  EXPECT_EQ(run.answers("nan.jsonl", R"({"query": "q", "response": "a", "score": NaN})"), Texts{"a<|im_end|>\n"});
}

TEST(DatasetPaths, OnlyANameAsOnAHubIsAnsweredWithDownloads) {
  PathRun run;
  const auto answer = [&](const std::string& name) -> std::string {
    run.config.data.dataset = {name};
    try {
      run.open();
    } catch (const ConfigError& e) {
      return e.what();
    }
    return "nothing is wrong";
  };
  for (const std::string name : {"d/nofile.jsonl", "a/b/c", "/nowhere/x", "./nowhere/x", "numbers d/messages"}) {
    EXPECT_EQ(answer(name).find("qft fetch"), std::string::npos) << answer(name);
    EXPECT_NE(answer(name).find("no such file or folder"), std::string::npos) << answer(name);
  }
  EXPECT_NE(answer("numbers d/messages").find("separate datasets by commas"), std::string::npos);
  EXPECT_NE(answer("owner/name").find("qft fetch --dataset owner/name"), std::string::npos);
}

TEST(DatasetPaths, PairsAreToldFromTheRecordsInTheirStages) {
  PathRun run;
  const auto pair = [&](const std::string& file, std::string_view text) {
    run.folder.write(file, text);
    const auto items = run.read(file).items;
    EXPECT_EQ(items.size(), 1u) << file;
    EXPECT_EQ(items.front().sequences.size(), 2u) << file;
    Texts all;
    for (const auto& sequence : items.front().sequences) {
      all.push_back(run.learned(sequence).front());
      EXPECT_NE(run.text(sequence.ids).find("user\nq<|im_end|>"), std::string::npos) << run.text(sequence.ids);
    }
    return all;
  };
  const Texts expected{"a<|im_end|>\n", "b<|im_end|>\n"};
  const std::string question = R"({"role": "user", "content": "q"})", good = R"({"role": "assistant", "content": "a"})",
                    bad = R"({"role": "assistant", "content": "b"})";
  const std::vector<std::pair<std::string, std::string>> files = {
      {"trl.jsonl", R"({"prompt": "q", "chosen": "a", "rejected": "b"})"},
      {"alpaca.jsonl", R"({"instruction": "q", "input": "", "output": "x", "chosen": "a", "rejected": "b"})"},
      {"query.jsonl", R"({"query": "q", "response": "a", "rejected_response": "b"})"},
      {"swift.jsonl", fmt::format(R"({{"messages": [{}, {}], "rejected_response": "b"}})", question, good)},
      {"swift_messages.jsonl",
       fmt::format(R"({{"messages": [{0}, {1}], "rejected_messages": [{0}, {2}]}})", question, good, bad)},
      {"turns.jsonl", fmt::format(R"({{"prompt": [{}], "chosen": [{}], "rejected": [{}]}})", question, good, bad)},
      {"whole.jsonl", fmt::format(R"({{"prompt": "q", "chosen": [{0}, {1}], "rejected": [{0}, {2}], "messages": [{0}, {1}]}})",
                                  question, good, bad)},
      {"sharegpt.jsonl", R"({"conversations": [{"from": "human", "value": "q"}], "chosen": {"from": "gpt", "value": "a"}, )"
                         R"("rejected": {"from": "gpt", "value": "b"}})"}};
  for (const std::string stage : {"dpo", "rm"}) {
    run.config.finetuning.stage = stage;
    for (const auto& [file, text] : files) EXPECT_EQ(pair(file, text), expected) << stage << " " << file;
  }
  run.folder.write("differ.jsonl", fmt::format(R"({{"chosen": [{0}, {1}], "rejected": [{1}, {2}]}})", question, good, bad));
  EXPECT_TRUE(run.read("differ.jsonl").items.empty());  // dropped: they differ before their last messages

  run.config.finetuning.stage = "sft";
  EXPECT_EQ(run.answers("swift.jsonl", files[3].second), Texts{"a<|im_end|>\n"});
  run.folder.write("trl.jsonl", files[0].second);
  expect_error<ConfigError>([&] { run.read("trl.jsonl"); }, {"stage sft learns answers"});
  run.config.finetuning.stage = "dpo";
  run.folder.write("single.jsonl", R"({"query": "q", "response": "a"})");
  expect_error<ConfigError>([&] { run.read("single.jsonl"); }, {"holds no preference pairs", "columns chosen and rejected"});
}

TEST(DatasetPaths, MarksAreReadForStageKto) {
  PathRun run;
  run.config.finetuning.stage = "kto";
  run.folder.write("swift.jsonl",
                   R"({"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}], "label": true})"
                   "\n"
                   R"({"messages": [{"role": "user", "content": "r"}, {"role": "assistant", "content": "b"}], "label": false})");
  const auto items = run.read("swift.jsonl").items;
  ASSERT_EQ(items.size(), 2u);
  EXPECT_TRUE(qft::encode::is_desirable(items[0].tags));
  EXPECT_FALSE(qft::encode::is_desirable(items[1].tags));
  run.folder.write("trl.jsonl", R"({"prompt": "q", "completion": "a", "label": false})"
                                "\n"
                                R"({"prompt": "r", "completion": "b", "label": true})");
  EXPECT_FALSE(qft::encode::is_desirable(run.read("trl.jsonl").items[0].tags));
  run.folder.write("none.jsonl", R"({"prompt": "q", "completion": "a", "label": 3})");
  expect_error<ConfigError>([&] { run.read("none.jsonl"); }, {"has no marks", "kto_tag"});
  run.config.finetuning.stage = "sft";
  EXPECT_EQ(run.answers("swift.jsonl", R"({"query": "q", "response": "a", "label": true})"), Texts{"a<|im_end|>\n"});
}

TEST(DatasetPaths, TextsAreLearnedByStagePt) {
  PathRun run;
  run.config.finetuning.stage = "pt";
  run.config.data.packing = false;
  run.folder.write("t.jsonl", R"({"text": "some text"})");
  EXPECT_EQ(run.read("t.jsonl").items.size(), 1u);
  run.folder.write("t.txt", "a line\nanother\n");
  EXPECT_EQ(run.read("t.txt").items.size(), 2u);
}

TEST(DatasetPaths, MessagesMayHaveAnyWordForARole) {
  PathRun run;
  run.folder.write("both.jsonl", R"({"conversations": [{"from": "user", "value": "q"}, {"from": "gpt", "value": "a"}]})"
                                 "\n"
                                 R"({"conversations": [{"from": "human", "value": "q"}, {"from": "assistant", "value": "a"}]})");
  const auto items = run.read("both.jsonl").items;
  ASSERT_EQ(items.size(), 2U);
  EXPECT_EQ(items[0].sequences[0].ids, items[1].sequences[0].ids);
}

TEST(Templates, AreNeededWhereTheModelHasNone) {
  PathRun run;
  run.config.data.template_name.clear();
  run.folder.write("d.jsonl", R"({"query": "q", "response": "a"})");
  expect_error<ConfigError>([&] { run.read("d.jsonl"); }, {"template is not given", "no chat template", "chatml"});
}

}  // namespace
