// Values of records: flags, repeated keys, lists as JSON texts, and the messages of type errors.
#include "qft/core/python_json.h"
#include "qft/encode/record_converter.h"

#include "encode/record_value.h"
#include "fixture.h"
#include <fmt/ranges.h>

namespace {

using nlohmann::json;
using qft::ConfigError;
using qft::Error;
using qft::encode::as_flag;
using qft::encode::DatasetSpec;
using qft::encode::Formatting;
using qft::test::encode_all;
using qft::test::expect_error;
using qft::test::SmallRun;

/// A file that `dataset` names directly.
struct FileRun : SmallRun {
  qft::test::EncodedCorpus read(const std::string& file, std::string_view text) {
    config.data.dataset = {folder.write(file, text).string()};
    return encode_all(config);
  }
  std::string text_of(const std::string& file, std::string_view records) {
    const auto items = read(file, records).items;
    return items.empty() ? "nothing" : text(items.back().sequences.back().ids);
  }
};

TEST(Flags, HaveOneReader) {
  simdjson::dom::parser parser;
  const auto flag = [&](std::string_view value) -> std::string {
    const auto read = as_flag(parser.parse(value).value());
    return read ? *read ? "yes" : "no" : "none";
  };
  for (const char* value :
       {"true", "1", "1.0", "\"true\"", "\"TRUE\"", "\"True\"", "\" true \"", "\"1\"", "\"1.0\"", "\"yes\"", "\"YES\""})
    EXPECT_EQ(flag(value), "yes") << value;
  for (const char* value : {"false", "0", "0.0", "-0.0", "\"false\"", "\"FALSE\"", "\"False\"", "\"0\"", "\"no\"", "\"No\\n\""})
    EXPECT_EQ(flag(value), "no") << value;
  for (const char* value : {"null", "2", "-1", "0.5", "\"\"", "\" \"", "\"t\"", "\"on\"", "\"maybe\"", "[true]", "{}"})
    EXPECT_EQ(flag(value), "none") << value;
}

TEST(Flags, OfMarksAreReadFromEveryKindOfFile) {
  FileRun run;
  run.config.finetuning.stage = "kto";
  const auto liked = [&](const std::string& file, std::string_view text) {
    std::string marks;
    for (const auto& item : run.read(file, text).items) marks += qft::encode::is_desirable(item.tags) ? '+' : '-';
    return marks;
  };
  EXPECT_EQ(liked("d.csv", "prompt,completion,label\nq,a,true\nq,b,false\n"), "+-");
  EXPECT_EQ(liked("d.csv", "prompt,completion,kto_tag\nq,a,TRUE\nq,b,0\nq,c,1.0\n"), "+-+");
  EXPECT_EQ(
      liked("d.jsonl",
            "{\"query\": \"q\", \"response\": \"a\", \"label\": 1}\n{\"query\": \"q\", \"response\": \"a\", \"label\": \"no\"}"),
      "+-");
  expect_error<Error>([&] { liked("d.csv", "prompt,completion,label\nq,a,true\nq,b,maybe\n"); },
                      {"d.csv:3: label: expected true or false, got the text \"maybe\": write true or false"});
  expect_error<ConfigError>([&] { liked("d.csv", "prompt,completion,label\nq,a,good\nq,b,bad\n"); }, {"has no marks"});
}

TEST(MarkedAnswers, NeverGoWithTheirOwnAnswer) {
  FileRun run;
  run.config.finetuning.stage = "kto";
  // the third record is empty
  const std::string four = "prompt,completion,label\nq,one,true\nr,two,false\ns,,true\nt,four,true\n";
  for (const std::int64_t chunk : {1, 2, 3, 1000}) {
    run.config.data.preprocessing_batch_size = chunk;
    const auto items = run.read("d.csv", four).items;
    ASSERT_EQ(items.size(), 3u) << chunk;
    for (const auto& item : items) EXPECT_NE(item.sequences[0].ids, item.sequences[1].ids) << chunk;
  }
  expect_error<ConfigError>([&] { run.read("d.csv", "prompt,completion,label\nq,one,true\nr,,false\n"); },
                            {"d.csv:2", "no other record has a mark and an answer"});
}

TEST(Records, AreReadFromFilesWithEndingsInAnyCase) {
  FileRun run;
  EXPECT_EQ(run.text_of("d.CSV", "prompt,completion\nq,one\n"), run.text_of("d.csv", "prompt,completion\nq,one\n"));
  EXPECT_EQ(run.text_of("d.JsonL", R"({"prompt": "q", "completion": "one"})"),
            run.text_of("d.jsonl", R"({"prompt": "q", "completion": "one"})"));
}

TEST(Flags, OfMessagesAreTheSame) {
  FileRun run;
  const auto learned = [&](const std::string& flag) {
    const auto items =
        run.read("d.jsonl", R"({"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a", "loss": )" +
                                flag + R"(}, {"role": "user", "content": "q"}, {"role": "assistant", "content": "b"}]})")
            .items;
    return fmt::format("{}", fmt::join(run.learned(items.front().sequences.front()), ""));
  };
  EXPECT_EQ(learned("\"False\""), "b<|im_end|>\n");
  EXPECT_EQ(learned("0.0"), learned("false"));
  EXPECT_EQ(learned("\"1\""), learned("true"));
  expect_error<Error>([&] { learned("\"some\""); }, {"loss: expected true or false", "got the text \"some\""});
}

TEST(RepeatedKeys, AreErrorsWithLineKeyAndBothValues) {
  FileRun run;
  const auto refuses = [&](const std::string& file, std::string_view text, const std::vector<std::string>& parts) {
    SCOPED_TRACE(text);
    expect_error<Error>([&] { run.read(file, text); }, parts);
  };
  const std::string good = R"({"instruction": "q", "output": "a"})"
                           "\n";
  refuses("d.jsonl", good + R"({"instruction": "q", "output": "old", "output": "new"})",
          {"d.jsonl:2: ", "the key 'output' appears twice in one object, as \"old\" and as \"new\": remove one"});
  refuses("d.jsonl", good + R"({"instruction": "q", "output": "a", "meta": {"x": [{}, {"k": 1, "k": 1}]}})",
          {"d.jsonl:2: ", "the key 'k' appears twice in 'meta.x[1]', as 1 and as 1"});
  refuses("d.jsonl", good + R"({"instruction": "q", "output": "a", "\u006futput": "b"})", {"d.jsonl:2: ", "the key 'output'"});
  refuses("d.json", "[" + good + R"(, {"instruction": "q", "output": "a", "score": NaN, "score": 1}])",
          {"d.json:2: record 2", "the key 'score' appears twice"});
  std::string wide = R"({"instruction": "q", "output": "a")";
  for (int i = 0; i < 40; ++i) wide += fmt::format(", \"c{}\": {}", i, i);
  EXPECT_EQ(run.read("d.jsonl", good + wide + "}").items.size(), 2u);
  refuses("d.jsonl", good + wide + R"(, "c30": "again"})", {"the key 'c30' appears twice in one object, as 30 and as \"again\""});
  refuses("d.jsonl", R"({"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a", "content": "b"}]})",
          {"d.jsonl:1: ", "the key 'content' appears twice in 'messages[1]', as \"a\" and as \"b\""});
  refuses(
      "d.jsonl",
      R"({"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}], "tools": "[{\"name\": \"f\", \"name\": \"g\"}]"})",
      {"d.jsonl:1: ", "the key 'name' appears twice", "as \"f\" and as \"g\""});
  refuses("d.csv", "instruction,output,output\nq,a,b\n", {"d.csv:1: the first line names the column 'output' twice"});
}

TEST(JsonTexts, OfListsAreRead) {
  FileRun run;
  const json messages = json::parse(R"([{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}])");
  const std::string expected = run.text_of("d.jsonl", json{{"messages", messages}}.dump());
  ASSERT_NE(expected.find("a<|im_end|>"), std::string::npos);
  const std::string text = messages.dump();
  EXPECT_EQ(run.text_of("d.jsonl", json{{"messages", text}}.dump()), expected);
  EXPECT_EQ(run.text_of("d.jsonl", json{{"messages", json(text).dump()}}.dump()), expected);  // quoted twice
  EXPECT_EQ(run.text_of("d.jsonl", json{{"messages", " \n" + messages.dump(2)}, {"score", 1.5}}.dump()), expected);
  std::string quoted = text;
  for (std::size_t at = 0; (at = quoted.find('"', at)) != quoted.npos; at += 2) quoted.insert(at, 1, '"');
  EXPECT_EQ(run.text_of("d.csv", "id,messages\n1,\"" + quoted + "\"\n"), expected);
  EXPECT_EQ(
      run.text_of(
          "d.jsonl",
          json{{"messages", R"([{"role": "user", "content": "q"}, {"role": "assistant", "content": "a", "x": NaN}])"}}.dump()),
      expected);
  const std::string turns = run.text_of("d.jsonl", R"({"instruction": "q", "output": "a", "history": [["x", "y"]]})");
  EXPECT_EQ(run.text_of("d.jsonl", R"({"instruction": "q", "output": "a", "history": "[[\"x\", \"y\"]]"})"), turns);
  for (const char* none : {"\"\"", "\" \"", "\"[]\"", "\"null\"", "null", "[]"})
    EXPECT_EQ(run.text_of("d.jsonl", fmt::format(R"({{"instruction": "q", "output": "a", "history": {}}})", none)), expected)
        << none;
}

TEST(JsonTexts, OfPairsAreReadWhereTheyAreMessages) {
  FileRun run;
  run.config.finetuning.stage = "dpo";
  const auto message = [](const char* role, const char* content) { return json{{"role", role}, {"content", content}}; };
  const json question = json::array({message("user", "q")}), good = json::array({message("assistant", "a")}),
             bad = json::array({message("assistant", "b")});
  const std::string lists = run.text_of("d.jsonl", json{{"prompt", question}, {"chosen", good}, {"rejected", bad}}.dump());
  EXPECT_EQ(run.text_of("d.jsonl", json{{"prompt", question.dump()}, {"chosen", good.dump()}, {"rejected", bad.dump()}}.dump()),
            lists);
  // An answer that is JSON but not messages stays a text.
  const std::string answer = run.text_of("d.jsonl", R"({"prompt": "q", "chosen": "[1]", "rejected": "[{\"a\": 1}]"})");
  EXPECT_NE(answer.find("[{\"a\": 1}]<|im_end|>"), std::string::npos) << answer;
}

TEST(JsonTexts, ThatAreNoJsonShowWhatWasFound) {
  FileRun run;
  const auto refuses = [&](std::string_view record, const std::vector<std::string>& parts) {
    SCOPED_TRACE(record);
    expect_error<Error>([&] { run.read("d.jsonl", record); }, parts);
  };
  refuses(R"({"messages": "hello there"})", {"d.jsonl:1", "messages: expected a list", "got the text \"hello there\""});
  refuses(R"({"instruction": "q", "output": "a", "history": "none"})",
          {"d.jsonl:1: history: expected a list, got the text \"none\", which is not JSON"});
  refuses(R"({"instruction": "q", "output": "a", "history": "[['x', 'y']]"})",
          {"d.jsonl:1: history: invalid JSON at byte 3: a single quote", "in the text \"[['x', 'y']]\""});
  refuses(R"({"instruction": "q", "output": "a", "history": 3})",
          {"d.jsonl:1: history: expected a list of pairs", "the number 3"});
  refuses(R"({"instruction": "q", "output": "a", "history": "[[\"x\", {\"k\": 1, \"k\": 2}]]"})",
          {"the key 'k' appears twice in 'history[0][1]'"});
  SmallRun named;
  named.add("d", "d.jsonl", R"({"conversations": "[{'from': 'human'}]"})", {{"formatting", "sharegpt"}});
  expect_error<Error>([&] { named.encode(); }, {"conversations"});
}

TEST(ValueErrors, NameWhatWasFoundAndTheWayOut) {
  simdjson::dom::parser parser;
  const auto fault = [&](std::string_view value) { return qft::encode::describe_not_a_text(parser.parse(value).value(), "x"); };
  EXPECT_EQ(fault("42"), "x: expected a text, got the number 42: put it in quotes");
  EXPECT_EQ(fault("true"), "x: expected a text, got true: put it in quotes");
  EXPECT_EQ(fault("null"), "x: expected a text, got null: write a text, \"\" for an empty one, or remove it");
  EXPECT_EQ(fault("[\"a\"]"), "x: expected a text, got a list: join its parts into one text");
  EXPECT_EQ(fault("{}"),
            "x: expected a text, got an object: write one text; if the model should generate this JSON, put it in quotes");
  EXPECT_EQ(fault(qft::quote_python_numbers("NaN")), "x: expected a text, got the number NaN: write null for a missing value");
}

TEST(CsvFiles, OfAnotherSeparatorAreToldSo) {
  FileRun run;
  const auto refuses = [&](std::string_view text, const std::vector<std::string>& parts) {
    SCOPED_TRACE(text);
    expect_error<Error>([&] { run.read("d.csv", text); }, parts);
  };
  refuses(";instruction;output\n0;q;a\n", {"d.csv", "its first line is separated by ';'", "sep=\";\""});
  refuses("instruction\toutput\nq\ta\n", {"its first line is separated by tabs", "sep=\"\\t\""});
  refuses("instruction|output\nq|a\n", {"its first line is separated by '|'"});
  refuses("instruction;output\nq, more;a\n", {"d.csv:2", "its first line is separated by ';'"});
  refuses("\"instruction\";\"output\"\n\"q\";\"a\"\n", {"d.csv:1", "text after its closing quote", "separated by ';'"});
  refuses("sep=;\ninstruction;output\nq;a\n", {"separated by ';'"});
  SmallRun named;
  named.add("d", "d.csv", "instruction;output\nq;a\n", {{"columns", {{"prompt", "instruction"}, {"response", "output"}}}});
  expect_error<ConfigError>([&] { named.encode(); }, {"no record of", "'instruction'", "separated by ';'"});
  EXPECT_EQ(run.read("d.csv", "instruction,output,a;b;c;d\nq;q,a;b|c,1\n").items.size(), 1u);
  EXPECT_EQ(run.read("d.csv", "\"instruction\",\"output\"\n\";;;;\",a\n").items.size(), 1u);
}

}  // namespace
