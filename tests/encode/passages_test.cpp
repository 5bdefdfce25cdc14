// Anchors with documents (stage embedding) and queries with documents (stage reranker): forms of records, sequences and tags.
#include "fixture.h"

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

TEST(Passages, AllFormsOfAnEmbeddingRecordReadAlike) {
  PassageRun run("embedding");
  const Texts expected = {"a<|end|>", "p<|end|>", "n<|end|>", "m<|end|>"};
  for (const char* record :
       {R"({"messages": [{"role": "user", "content": "a"}], "positive_messages": [[{"role": "user", "content": "p"}]],
           "negative_messages": [[{"role": "user", "content": "n"}], [{"role": "user", "content": "m"}]]})",
        R"({"query": "a", "response": "p", "rejected_response": ["n", "m"]})",
        R"({"query": "a", "positive": "p", "negative": ["n", "m"]})",
        R"({"anchor": "a", "positive": "p", "negative_1": "n", "negative_2": "m"})",
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

TEST(Passages, OtherStagesAndFormsAreRefused) {
  PassageRun run("reranker");
  expect_error<ConfigError>([&] { run.read(R"({"query": "q"})"); }, {"has no documents"});
  run.config.finetuning.stage = "sft";
  run.config.data.dataset.clear();
  run.add("d", "d.jsonl", R"({"a": "x", "b": "y"})", {{"columns", {{"prompt", "a"}, {"positive", "b"}}}});
  expect_error<ConfigError>([&] { run.encode(); }, {"anchors with documents", "embedding and reranker"});
}

}  // namespace
