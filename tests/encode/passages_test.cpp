// Anchors with documents (stage embedding) and queries with documents (stage reranker): forms of records, sequences and tags.
#include "qft/comm/communicator.h"
#include "qft/pack/preprocess.h"

#include "fixture.h"
#include <fmt/format.h>

namespace {

using nlohmann::json;
using qft::ConfigError;
using qft::Error;
using qft::encode::EncodedItem;
using qft::test::expect_error;
using qft::test::SmallRun;
using Texts = std::vector<std::string>;

/// A run in a stage, with a template that puts <|end|> behind a text.
struct PassageRun : SmallRun {
  explicit PassageRun(const char* stage) {
    config.finetuning.stage = stage;
    config.data.cutoff_len = 100;
    config.data.template_name = folder
                                    .write("plain.yaml",
                                           "name: plain\nsystem: \"{{content}} \"\nuser: \"{{content}}<|end|>\"\n"
                                           "assistant: \"{{content}}<|end|>\"\nsystem_in_user: true\n")
                                    .string();
  }
  std::vector<EncodedItem> read(const std::string& records, const std::string& name = "d.jsonl") {
    config.data.dataset = {folder.write(name, records).string()};
    return qft::test::encode_all(config).items;
  }
  Texts texts(const EncodedItem& item) const {
    Texts all;
    for (const auto& sequence : item.sequences) all.push_back(text(sequence.ids));
    return all;
  }
  /// The texts of a single record.
  Texts texts(const std::string& record) {
    const auto items = read(record);
    EXPECT_EQ(items.size(), 1U) << record;
    return items.empty() ? Texts() : texts(items.front());
  }
};

std::string tag(const EncodedItem& item, std::string_view name) {
  for (const auto& [key, value] : item.tags)
    if (key == name) return value;
  return "(none)";
}

/// 64 records like `first`, then `later`.
std::string after_first_records(const std::string& first, const std::string& later) {
  std::string text;
  for (int i = 0; i < 64; ++i) text += first + "\n";
  return text + later + "\n";
}

TEST(Passages, AllFormsOfAnEmbeddingRecordReadAlike) {
  PassageRun run("embedding");
  const Texts expected = {"a<|end|>", "p<|end|>", "n<|end|>", "m<|end|>"};
  for (
      const char* record :
      {R"({"messages": [{"role": "user", "content": "a"}], "positive_messages": [[{"role": "user", "content": "p"}]],
           "negative_messages": [[{"role": "user", "content": "n"}], [{"role": "user", "content": "m"}]]})",
       R"({"query": "a", "response": "p", "rejected_response": ["n", "m"]})",
       R"({"query": "a", "positive": "p", "negative": ["n", "m"]})",
       R"({"anchor": "a", "positive": "p", "negative_1": "n", "negative_2": "m"})",
       R"({"anchor": "a", "positive": "p", "negatives": ["n", "m"]})", R"({"query": "a", "pos": ["p"], "neg": ["n", "m"]})",
       R"({"query": "a", "pos": ["p"], "neg": ["n", "m"], "prompt": "x", "type": "y", "pos_scores": [0.9], "neg_scores": [0.1, 0.2]})",
       R"({"negative": ["n", "m"], "positive": ["p"], "anchor": "a"})",
       R"({"first": "a", "second": "p", "third": "n", "fourth": "m"})"}) {
    std::string line = record;
    std::erase(line, '\n');
    EXPECT_EQ(run.texts(line), expected) << record;
  }
}

TEST(Passages, PairsHaveALabel) {
  PassageRun run("embedding");
  const auto items = run.read(R"({"sentence1": "a", "sentence2": "p", "score": 0.25})"
                              "\n"
                              R"({"sentence1": "b", "sentence2": "q", "score": null})"
                              "\n");
  ASSERT_EQ(items.size(), 2U);
  EXPECT_EQ(run.texts(items[0]), (Texts{"a<|end|>", "p<|end|>"}));
  EXPECT_EQ(tag(items[0], "label"), "0.25");
  EXPECT_EQ(tag(items[1], "label"), "1.0");
  EXPECT_EQ(tag(items[0], "positives"), "1");
}

TEST(Passages, SystemMessagesComeBeforeTheirText) {
  PassageRun run("embedding");
  EXPECT_EQ(run.texts(R"({"messages": [{"role": "system", "content": "Find"}, {"role": "user", "content": "a"}], )"
                      R"("positive_messages": [[{"role": "system", "content": "Doc"}, {"role": "user", "content": "p"}]]})"),
            (Texts{"Find a<|end|>", "Doc p<|end|>"}));
}

TEST(Passages, ATextAloneIsAnAnchor) {
  PassageRun run("embedding");
  const auto items = run.read(R"({"text": "a"})");
  ASSERT_EQ(items.size(), 1U);
  EXPECT_EQ(run.texts(items[0]), Texts{"a<|end|>"});
  EXPECT_EQ(tag(items[0], "positives"), "0");
}

TEST(Passages, AnAnchorHasOnePositive) {
  PassageRun run("embedding");
  expect_error<Error>([&] { run.read(R"({"query": "a", "positive": ["p", "q"], "negative": []})"); },
                      {"'positive' holds 2 positives", "write a record for each"});
}

TEST(Passages, NumbersAreNoTexts) {
  PassageRun run("embedding");
  expect_error<ConfigError>([&] { run.read(R"({"title": "a", "body": "p", "page_id": "7"})"); }, {"'page_id' holds numbers"});
  expect_error<ConfigError>([&] { run.read(R"({"title": "a", "body": "p", "year": 1990})"); }, {"'year' holds numbers"});
}

/// An empty input must not become the positive, nor the right answer a negative.
TEST(Passages, InstructionsAndPairsOfAnswersAreReadByName) {
  PassageRun run("embedding");
  EXPECT_EQ(run.texts(R"({"instruction": "a", "input": "", "output": "p"})"), (Texts{"a<|end|>", "p<|end|>"}));
  EXPECT_EQ(run.texts(R"({"output": "p", "instruction": "a", "input": "b"})"), (Texts{"a\nb<|end|>", "p<|end|>"}));
  EXPECT_EQ(run.texts(R"({"prompt": "a", "completion": "p"})"), (Texts{"a<|end|>", "p<|end|>"}));
  const Texts triple = {"a<|end|>", "p<|end|>", "n<|end|>"};
  EXPECT_EQ(run.texts(R"({"instruction": "a", "input": "", "chosen": "p", "rejected": "n"})"), triple);
  EXPECT_EQ(run.texts(R"({"rejected": "n", "chosen": "p", "prompt": "a"})"), triple);
  EXPECT_EQ(run.texts(R"({"query": "a", "response": "p", "rejected": "n"})"), triple);
}

TEST(Passages, AKnownNameInAnotherPlaceIsRefused) {
  PassageRun run("embedding");
  const auto refuses = [&](const char* record, const std::string& part) {
    expect_error<ConfigError>([&] { run.read(record); }, {part, "rename the columns", "dataset_info.json"});
  };
  refuses(R"({"instruction": "a", "input": "b"})", "'input' would be the positive, but its name says an anchor");
  refuses(R"({"output": "a", "other": "b"})", "'output' would be the anchor, but its name says a positive");
  refuses(R"({"first": "a", "second": "b", "history": "c"})", "its name says a part of a conversation");
  EXPECT_EQ(run.texts(R"({"question": "a", "context": "p"})"), (Texts{"a<|end|>", "p<|end|>"}));
  EXPECT_EQ(run.texts(R"({"title": "a", "answer": "p", "wrong": "n"})"), (Texts{"a<|end|>", "p<|end|>", "n<|end|>"}));
}

/// sentence-transformers would read further texts as negatives; a source or a title would be no negative.
TEST(Passages, FurtherTextsBesideKnownNamesAreRefused) {
  PassageRun run("embedding");
  for (const char* record :
       {R"({"question": "a", "answer": "p", "wrong": "n"})", R"({"query": "a", "answer": "p", "wrong": ["n"]})",
        R"({"wrong": "n", "instruction": "a", "input": "", "output": "p"})"})
    expect_error<ConfigError>([&] { run.read(record); }, {"the column 'wrong' holds texts", "rename it to negative"});
  const std::string pair = R"({"query": "a", "answer": "p"})";
  expect_error<Error>([&] { run.read(after_first_records(pair, R"({"query": "a", "answer": "p", "wrong": "n"})")); },
                      {"wrong: none of the first 64 records", "rename it to negative"});
  EXPECT_EQ(run.texts(R"({"query": "a", "answer": "p", "id": "7", "year": 1990, "type": "x", "pos_scores": [1.0]})").size(), 2U);
}

TEST(Passages, NegativesNeedAPositive) {
  PassageRun run("embedding");
  for (const char* record : {R"({"anchor": "a", "negative": ["n", "m"]})", R"({"anchor": "a", "negative": "n"})"})
    expect_error<ConfigError>([&] { run.read(record); },
                              {"the column 'negative' holds negatives", "there is no column positive"});
  expect_error<ConfigError>([&] { run.read(R"({"messages": [{"role": "user", "content": "a"}], "rejected_response": "n"})"); },
                            {"there is no column positive_messages"});
}

TEST(Passages, OnlyKnownColumnsAreNegatives) {
  PassageRun run("embedding");
  for (const char* column : {"negative_ids", "negative_doc_id", "negative_score", "negative_passages", "negative_"}) {
    const auto refuses = [&](std::string record) {
      record.insert(record.size() - 1, fmt::format(", \"{}\": [\"7\"]", column));
      expect_error<ConfigError>([&] { run.read(record); }, {fmt::format("the column '{}' begins with negative", column)});
    };
    refuses(R"({"query": "a", "positive": "p", "negative": "n"})");
    refuses(R"({"messages": [{"role": "user", "content": "a"}], "positive_messages": [[{"role": "user", "content": "p"}]]})");
  }
}

TEST(Passages, LaterColumnsThatWouldBeReadAreRefused) {
  PassageRun run("embedding");
  const auto refuses = [&](const std::string& first, const std::string& later, const std::string& column) {
    expect_error<Error>([&] { run.read(after_first_records(first, later)); },
                        {"d.jsonl:65: ", column + ": none of the first 64 records"});
  };
  const std::string named = R"({"anchor": "a", "positive": "p", "negative_1": "n"})", bare = R"({"query": "a", "positive": "p"})";
  refuses(named, R"({"anchor": "a", "positive": "p", "negative_1": "n", "negative_2": "m"})", "negative_2");
  refuses(named, R"({"anchor": "a", "positive": "p", "negatives": ["m"]})", "negatives");
  for (const char* column :
       {"negative", "negative_3", "neg", "negative_messages", "rejected_response", "negative_score", "score"})
    refuses(bare, fmt::format(R"({{"query": "a", "positive": "p", "{}": "m"}})", column), column);
  refuses(R"({"first": "a", "second": "p"})", R"({"first": "a", "second": "p", "third": "n"})", "third");
  refuses(R"({"text": "a"})", R"({"text": "a", "page": 7})", "page");
  expect_error<Error>([&] { run.read(after_first_records(bare, R"({"query": "a", "document": "p"})")); },
                      {"document: the first 64 records use 'positive' instead"});
}

TEST(Passages, LaterColumnsThatWouldNotBeReadAreIgnored) {
  PassageRun run("embedding");
  const std::string first = R"({"query": "a", "positive": "p", "negative": null})";
  const auto last = [&](const std::string& later) { return run.texts(run.read(after_first_records(first, later)).back()); };
  const Texts pair = {"a<|end|>", "p<|end|>"};
  EXPECT_EQ(last(R"({"query": "a", "positive": "p", "source": "web", "query_id": 7})"), pair);
  EXPECT_EQ(last(R"({"query": "a", "positive": "p", "negative_2": null, "negatives": []})"), pair);
  EXPECT_EQ(last(R"({"query": "a", "positive": "p", "negative": "n"})").size(), 3U)
      << "a column that stood there without a value";
}

TEST(Passages, EmptyTextsAreLeftOut) {
  PassageRun run("embedding");
  const auto encode = [&](const std::string& records) {
    run.config.data.dataset = {run.folder.write("d.jsonl", records).string()};
    return qft::test::encode_all(run.config);
  };
  for (const char* name : {"plain", "empty"}) {
    if (std::string(name) == "empty") run.config.data.template_name = name;
    const auto all = encode(R"({"query": "", "positive": "p", "negative": ["n"]})"
                            "\n"
                            R"({"query": "a", "positive": "", "negative": ["n"]})"
                            "\n"
                            R"({"query": "a", "positive": "p", "negative": ["", "n", ""]})"
                            "\n");
    ASSERT_EQ(all.items.size(), 1U) << name;
    EXPECT_EQ(all.items[0].sequences.size(), 3U);
    EXPECT_EQ(all.counts[0].dropped[static_cast<std::size_t>(qft::encode::DropReason::empty_text)], 2);
    EXPECT_EQ(all.counts[0].empty_negatives, 2);
  }
  PassageRun ranking("reranker");
  ranking.config.data.dataset = {
      ranking.folder.write("d.jsonl", "{\"query\": \"q\", \"document\": \"\", \"label\": 0}\n").string()};
  const auto none = qft::test::encode_all(ranking.config);
  EXPECT_TRUE(none.items.empty());
  EXPECT_EQ(none.counts[0].dropped[static_cast<std::size_t>(qft::encode::DropReason::empty_text)], 1);
}

TEST(Passages, AnchorsJoinPromptAndQueryAndNothingElse) {
  PassageRun run("embedding");
  const auto read = [&](json columns, const char* formatting = "alpaca") {
    run.config.data.dataset.clear();
    columns.update({{"positive", "p"}});
    run.add("d", "d.jsonl", R"({"i": "find", "q": "a", "p": "b", "h": [], "r": "x", "null": null})",
            {{"columns", columns}, {"formatting", formatting}});
    const auto items = run.encode().items;
    return items.empty() ? Texts() : run.texts(items[0]);
  };
  EXPECT_EQ(read({{"prompt", "i"}, {"query", "q"}}), (Texts{"find\na<|end|>", "b<|end|>"}));
  EXPECT_EQ(read({{"prompt", "null"}, {"query", "q"}}), (Texts{"a<|end|>", "b<|end|>"}));
  for (const char* column : {"response", "history", "tools", "documents", "chosen"})
    expect_error<ConfigError>([&] { read({{"prompt", "q"}, {column, "r"}}); }, {fmt::format("columns: {} is 'r'", column)});
  expect_error<ConfigError>([&] { read({{"messages", "q"}, {"query", "r"}}, "sharegpt"); }, {"columns: query is 'r'"});
}

TEST(Passages, FaultyValuesAreNamed) {
  PassageRun run("embedding");
  const std::vector<std::string> mixed = {"negative: a list has texts and messages", "write all as texts"};
  expect_error<Error>(
      [&] { run.read(R"({"query": "a", "positive": "p", "negative": ["b", {"role": "user", "content": "c"}]})"); }, mixed);
  expect_error<Error>(
      [&] { run.read(R"({"query": "a", "positive": "p", "negative": [{"role": "user", "content": "c"}, "b"]})"); }, mixed);
  expect_error<Error>([&] { run.read(R"({"query": "a", "positive": {"role": "user", "content": "c"}})"); },
                      {"positive: expected a text or a list, got a message"});
  expect_error<Error>([&] { run.read(R"({"sentence1": "a", "sentence2": "p", "score": ""})"); },
                      {"'score' is an empty text", "write null"});
  expect_error<Error>([&] { run.read(R"({"sentence1": "a", "sentence2": "p", "score": "high"})"); }, {"'score' is 'high'"});
}

TEST(Passages, LongTextsLoseTheirEndAndKeepTheEndToken) {
  PassageRun run("embedding");
  run.config.data.cutoff_len = 4;
  EXPECT_EQ(run.texts(R"({"anchor": "abcdef", "positive": "xyz"})"), (Texts{"abc<|end|>", "xyz<|end|>"}));
}

TEST(Passages, MinLabelLeavesOutRecords) {
  PassageRun run("embedding");
  run.config.data.dataset.clear();
  run.add("pairs", "pairs.jsonl",
          R"({"a": "x", "b": "y", "s": 0.7})"
          "\n"
          R"({"a": "v", "b": "w", "s": 0.75})"
          "\n",
          {{"columns", {{"prompt", "a"}, {"positive", "b"}, {"label", "s"}}}, {"min_label", 0.75}});
  const auto encoded = run.encode();
  ASSERT_EQ(encoded.items.size(), 1U);
  EXPECT_EQ(run.texts(encoded.items[0]), (Texts{"v<|end|>", "w<|end|>"}));
}

TEST(Passages, MinLabelTakesAMissingLabelAsOne) {
  PassageRun run("embedding");
  const json columns = {{"prompt", "a"}, {"positive", "b"}, {"label", "s"}};
  const auto kept = [&](const char* records, double least) {
    run.config.data.dataset.clear();
    run.add("pairs", "pairs.jsonl", records, {{"columns", columns}, {"min_label", least}});
    return run.encode().items.size();
  };
  const char* records = "{\"a\": \"x\", \"b\": \"y\", \"s\": 0.5}\n{\"a\": \"x\", \"b\": \"y\", \"s\": null}\n";
  EXPECT_EQ(kept(records, 0.75), 1U);
  EXPECT_EQ(kept(records, 1.5), 0U);
  expect_error<ConfigError>([&] { kept(R"({"a": "x", "b": ["y", "z"], "s": [1, 0]})", 0.75); },
                            {"dataset 'pairs': 's' is [1, 0]", "min_label"});
}

TEST(Passages, MinLabelNeedsPairsWithLabels) {
  const auto refuses = [](const char* stage, const json& columns, const std::string& part) {
    PassageRun run(stage);
    run.add("d", "d.jsonl", R"({"a": "x", "b": "y", "s": 0.7})", {{"columns", columns}, {"min_label", 0.75}});
    expect_error<ConfigError>([&] { run.encode(); }, {"dataset 'd' has min_label 0.75", part});
  };
  refuses("sft", {{"prompt", "a"}, {"response", "b"}}, "only stages embedding and reranker use");
  refuses("seq_cls", {{"prompt", "a"}, {"label", "s"}}, "the stage is seq_cls");
  refuses("embedding", {{"prompt", "a"}, {"positive", "b"}}, "no column of labels");
  refuses("embedding", {{"prompt", "a"}, {"label", "s"}}, "no column of positive documents");
}

/// The query is the question, a document its answer; relevant documents come first.
TEST(Passages, ARankingHasASequencePerDocument) {
  PassageRun run("reranker");
  const Texts expected = {"q<|end|>p<|end|>", "q<|end|>r<|end|>", "q<|end|>n<|end|>"};
  for (const char* record : {R"({"query": "q", "positive": ["p", "r"], "negative": "n"})",
                             R"({"query": "q", "docs": ["p", "n", "r"], "labels": [1, 0, 1]})"}) {
    const auto items = run.read(record);
    ASSERT_EQ(items.size(), 1U);
    EXPECT_EQ(run.texts(items[0]), expected) << record;
    EXPECT_EQ(tag(items[0], "positives"), "2");
    EXPECT_EQ(tag(items[0], "label"), "(none)");
  }
}

TEST(Passages, APairOfAQueryAndADocumentHasItsLabel) {
  PassageRun run("reranker");
  const auto items = run.read(R"({"query": "q", "document": "d", "label": 0})"
                              "\n"
                              R"({"query": "q", "document": "e", "label": 1})"
                              "\n");
  ASSERT_EQ(items.size(), 2U);
  EXPECT_EQ(tag(items[0], "positives"), "0");
  EXPECT_EQ(tag(items[1], "positives"), "1");
}

TEST(Passages, LabelsOfDocumentsAreZeroOrOne) {
  PassageRun run("reranker");
  expect_error<Error>([&] { run.read(R"({"query": "q", "docs": ["p", "n"], "labels": [0.5, 0]})"); }, {"the label 0.5"});
  expect_error<Error>([&] { run.read(R"({"query": "q", "docs": ["p", "n"], "labels": [1]})"); }, {"1 numbers", "2 documents"});
  expect_error<Error>([&] { run.read(R"({"query": "q", "document": "d", "label": 0.5})"); }, {"'label' is 0.5"});
}

TEST(Passages, ATemplateMayAskOneQuestion) {
  PassageRun run("reranker");
  run.config.data.template_name =
      run.folder
          .write("ask.yaml",
                 "name: ask\nsystem: \"{{content}}: \"\nuser: \"{{content}}<|end|>\"\ndefault_system: Judge\n"
                 "ranking: \"{{instruction}}/{{query}}/{{document}}\"\ninstruction: find\n")
          .string();
  EXPECT_EQ(run.texts(R"({"query": "q", "positive": "p", "negative": ["{{query}}"]})"),
            (Texts{"Judge: find/q/p<|end|>", "Judge: find/q/{{query}}<|end|>"}));
  EXPECT_EQ(run.texts(R"({"messages": [{"role": "system", "content": "match"}, {"role": "user", "content": "q"}], )"
                      R"("positive_messages": [[{"role": "assistant", "content": "p"}]], )"
                      R"("negative_messages": [[{"role": "system", "content": "own"}, {"role": "assistant", "content": "n"}]]})"),
            (Texts{"Judge: match/q/p<|end|>", "Judge: own/q/n<|end|>"}));
  run.config.data.cutoff_len = 17;
  EXPECT_EQ(run.texts(R"({"query": "q", "positive": "long"})"), Texts{"Judge: find/q/lo<|end|>"});
}

/// Without a token of the document a score would say nothing about it.
TEST(Passages, ADocumentWithoutRoomIsLeftOut) {
  PassageRun run("reranker");
  run.config.data.dataset = {
      run.folder.write("d.jsonl", "{\"query\": \"abcdef\", \"positive\": \"p\", \"negative\": \"n\"}\n").string()};
  run.config.data.cutoff_len = 9;  // abcdef<|end|>p<|end|>
  EXPECT_EQ(qft::test::encode_all(run.config).items.size(), 1U);
  run.config.data.cutoff_len = 8;
  const auto none = qft::test::encode_all(run.config);
  EXPECT_TRUE(none.items.empty());
  EXPECT_EQ(none.counts[0].dropped[static_cast<std::size_t>(qft::encode::DropReason::no_tokens)], 1);
}

TEST(Passages, OtherStagesAndFormsAreRefused) {
  PassageRun run("reranker");
  expect_error<ConfigError>([&] { run.read(R"({"query": "q"})"); }, {"has no documents"});
  run.config.finetuning.stage = "sft";
  run.config.data.dataset.clear();
  run.add("d", "d.jsonl", R"({"a": "x", "b": "y"})", {{"columns", {{"prompt", "a"}, {"positive", "b"}}}});
  expect_error<ConfigError>([&] { run.encode(); }, {"anchors with documents", "embedding and reranker"});
}

TEST(Passages, ArePreviewedWithoutLabels) {
  for (const char* stage : {"embedding", "reranker"}) {
    PassageRun run(stage);
    const auto comm = qft::comm::make_self_communicator();
    const auto preview = [&](const char* records) {
      run.config.data.dataset = {run.folder.write("d.jsonl", records).string()};
      return qft::pack::preview_datasets(run.config, qft::pack::CorpusPart::train, *comm, run.folder.path() / "train.h5");
    };
    EXPECT_EQ(preview(R"({"query": "q", "positive": "p", "negative": "n"})").records, 1) << stage;
    expect_error<Error>([&] { preview(R"({"query": "", "positive": "p", "negative": "n"})"); }, {"d.jsonl"});
  }
}

}  // namespace
