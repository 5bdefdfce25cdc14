// Finding records in files: layouts, numbering across files, lines in errors.
#include "qft/core/activity.h"
#include "qft/encode/record_source.h"

#include "fixture.h"

namespace {

using qft::Error;
using qft::encode::RecordCursor;
using qft::encode::RecordSource;
using qft::encode::RecordText;
using qft::test::expect_error;
using qft::test::TempFolder;

std::vector<std::pair<std::string, std::int64_t>> all_of(const RecordSource& source) {
  std::vector<std::pair<std::string, std::int64_t>> records;
  RecordCursor cursor(source);
  for (std::int64_t i = 0; i < source.size(); ++i) {
    const RecordText record = cursor.at(i);
    records.emplace_back(record.text, record.line);
  }
  return records;
}

std::string last_place(const RecordSource& source) {
  RecordCursor cursor(source);
  return cursor.at(source.size() - 1).where();
}

using Expected = std::vector<std::pair<std::string, std::int64_t>>;

TEST(RecordSource, JsonLinesSkipBlankLinesAndCountThem) {
  TempFolder folder;
  const auto file = folder.write("a.jsonl", "{\"a\":1}\r\n\n  \n{\"a\":2}\n{\"a\":3}");
  EXPECT_EQ(all_of(*RecordSource::open({file})), (Expected{{"{\"a\":1}", 1}, {"{\"a\":2}", 4}, {"{\"a\":3}", 5}}));
}

TEST(RecordSource, JsonArrayElementsKeepTheirText) {
  TempFolder folder;
  const auto file = folder.write("a.json", "\xEF\xBB\xBF [\n {\"a\": \"}]\\\"{\"},\n\n{\n\"b\": {}\n} ]\n");
  EXPECT_EQ(all_of(*RecordSource::open({file})), (Expected{{"{\"a\": \"}]\\\"{\"}", 2}, {"{\n\"b\": {}\n}", 4}}));
}

TEST(RecordSource, TextLinesIncludeEmptyOnes) {
  TempFolder folder;
  const auto file = folder.write("a.txt", "one\n\n{two\r\n");
  const auto source = RecordSource::open({file});
  EXPECT_TRUE(source->is_text());
  EXPECT_EQ(all_of(*source), (Expected{{"one", 1}, {"", 2}, {"{two", 3}}));
}

TEST(RecordSource, NumbersRunOverFilesAndCanBeReadInAnyOrder) {
  TempFolder folder;
  std::string lines, array = "[";
  for (int i = 0; i < 1000; ++i) {
    lines += "{\"n\": " + std::to_string(i) + "}\n";
    array += (i ? ",\n" : "") + std::string("{\"n\": ") + std::to_string(1000 + i) + "}";
  }
  const auto source =
      RecordSource::open({folder.write("a.jsonl", lines), folder.write("empty.json", "[]"), folder.write("b.json", array + "]")});
  ASSERT_EQ(source->size(), 2000);
  RecordCursor cursor(*source);
  for (const std::int64_t i : {1999, 0, 255, 256, 257, 1000, 999, 1500, 1499, 1501, 512, 1002, 1001}) {
    EXPECT_EQ(cursor.at(i).text, "{\"n\": " + std::to_string(i) + "}");
    EXPECT_EQ(cursor.at(i).line, i % 1000 + 1);
  }
}

TEST(RecordSource, FindingAndReadingManyRecordsShowsProgress) {
  TempFolder folder;
  std::string lines;
  while (lines.size() < (std::size_t{13} << 20)) lines += "{\"a\":\"" + std::string(1000, 'x') + "\"}\n";
  const auto file = folder.write("long.jsonl", lines);
  const auto ticks = [] { return qft::activity::state().ticks; };
  const auto before = ticks();
  const auto source = RecordSource::open({file});
  const auto opened = ticks();
  EXPECT_GE(opened, before + 3);  // windows of 4 MiB
  RecordCursor cursor(*source);
  for (std::int64_t i = 0; i < source->size(); ++i) cursor.at(i);
  EXPECT_GE(ticks(), opened + 3);
}

TEST(RecordSource, PlacesOfArraysHaveRecordAndByte) {
  TempFolder folder;
  std::string one_line = "[{}";
  for (int i = 1; i < 1000; ++i) one_line += ",{}";
  const auto file = folder.write("one.json", one_line + "]");
  EXPECT_EQ(last_place(*RecordSource::open({file})), file.string() + ":1: record 1000, byte 2999");
  const auto lines = folder.write("l.jsonl", "{}\n\n{}\n");
  EXPECT_EQ(last_place(*RecordSource::open({lines})), lines.string() + ":3");
}

TEST(RecordSource, BrokenArraysAreErrorsWithFileAndLine) {
  TempFolder folder;
  const std::pair<const char*, const char*> cases[] = {
      {"[{\"a\": 1}\n{\"a\": 2}]", "b.json:2: record 2, byte 11: expected ','"},
      {"[{\"a\": 1},\n\n{\"a\": \"x}]", "b.json:3: record 2, byte 13: the record that starts here has no end"},
      {"[{\"a\": 1}\n", "b.json:2: record 2, byte 11: the file ends inside the array"},
      {"[{\"a\": 1},", "b.json:1: record 2, byte 11: the file ends inside the array"},
      {"[\n5]", "b.json:2: record 1, byte 3: expected a record that starts with '{'"},
      {"[{\"a\": 1}, {},\n]", "b.json:2: record 3, byte 16: a comma after the last record: remove it"},
      {"[{}]\n[{}]", "b.json:2: record 2, byte 6: text after the end of the array"},
      {"[", "b.json:1: record 1, byte 2: the file ends inside the array"},
  };
  for (const auto& [text, message] : cases) {
    const auto file = folder.write("b.json", text);
    SCOPED_TRACE(text);
    expect_error<Error>([&] { RecordSource::open({file}); }, {message});
  }
}

TEST(RecordSource, NoRecordsAtAllIsAnError) {
  TempFolder folder;
  for (const char* text : {"", "[]", "\n\n"})
    expect_error<Error>([&] { RecordSource::open({folder.write("e.json", text)}); }, {"e.json", "no records"});
  expect_error<Error>([&] { RecordSource::open({folder.path() / "absent.json"}); }, {"absent.json"});
}

TEST(RecordSource, HashFollowsTheContents) {
  TempFolder folder;
  const auto hash = [&](const char* text) { return RecordSource::open({folder.write("h.jsonl", text)})->hash(); };
  const std::string first = hash("{}\n");
  EXPECT_EQ(hash("{}\n"), first);
  EXPECT_NE(hash("{} \n"), first);
}

TEST(RecordSource, CsvRowsBecomeObjectsOfTexts) {
  TempFolder folder;
  const auto file = folder.write("a.csv",
                                 "\xEF\xBB\xBFinstruction,\"out\"\"put\",note\r\n"
                                 "q,42,\r\n"
                                 "\r\n"
                                 "\"two\nlines, and \"\"quotes\"\"\",\"a\\b\",\"\"\n"
                                 "\xC3\xA4,NA,\tx");
  EXPECT_EQ(all_of(*RecordSource::open({file})),
            (Expected{{R"({"instruction": "q", "out\"put": "42", "note": null})", 2},
                      {R"({"instruction": "two\nlines, and \"quotes\"", "out\"put": "a\\b", "note": null})", 4},
                      {"{\"instruction\": \"\xC3\xA4\", \"out\\\"put\": \"NA\", \"note\": \"\\u0009x\"}", 6}}));
}

TEST(RecordSource, CsvRowsCanBeReadInAnyOrder) {
  TempFolder folder;
  std::string text = "n\n";
  for (int i = 0; i < 2000; ++i) text += "\"row\n" + std::to_string(i) + "\"\n";
  const auto source = RecordSource::open({folder.write("a.csv", text), folder.write("b.csv", "n\nlast\n")});
  ASSERT_EQ(source->size(), 2001);
  RecordCursor cursor(*source);
  for (const std::int64_t i : {1999, 0, 700, 701, 300, 1500, 2000, 1}) {
    const RecordText record = cursor.at(i);
    EXPECT_EQ(record.text, i == 2000 ? R"({"n": "last"})" : R"({"n": "row\n)" + std::to_string(i) + "\"}");
    EXPECT_EQ(record.line, i == 2000 ? 2 : 2 + 2 * i);
  }
}

TEST(RecordSource, ABrokenCsvFileIsAnErrorWithItsLine) {
  TempFolder folder;
  const auto refuses = [&](std::string_view text, const std::vector<std::string>& parts) {
    const auto file = folder.write("a.csv", text);
    expect_error<Error>([&] { RecordSource::open({file}); }, parts);
  };
  refuses("a,b\n1,2\n\"x\ny\",2,3\n", {"a.csv:3: the row has 3 fields, the first line names 2 columns"});
  refuses("a,b\n1\n", {"a.csv:2: the row has 1 fields"});
  refuses("a,b\n1,\"2\n", {"a.csv:2: a field opens with a quote that is never closed"});
  refuses("a,b\n\"1\"x,2\n", {"a.csv:2: a field has text after its closing quote: 'x'"});
  refuses("a,b,a\n1,2,3\n", {"a.csv:1: the first line names the column 'a' twice"});
  refuses("a,b\n", {"a.csv has no records"});
}

}  // namespace
