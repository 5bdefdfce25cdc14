// dataset_info.json: defaults, and all errors in an entry.
#include "qft/core/error.h"

#include "fixture.h"

namespace {

using nlohmann::json;
using qft::ConfigError;
using qft::encode::DatasetSpec;
using qft::encode::load_dataset_info;
using qft::test::expect_error;
using qft::test::TempFolder;

struct Info {
  TempFolder folder;
  Info() {
    folder.write("d.json", "[{}]");
    folder.write("t.txt", "x");
  }
  DatasetSpec load(const json& entry) const {
    folder.write("dataset_info.json", json{{"d", entry}}.dump());
    const std::string name = "d";
    return load_dataset_info(folder.path(), {&name, 1}).front();
  }
  void refuses(const json& entry, std::vector<std::string> parts) const {
    SCOPED_TRACE(entry.dump());
    parts.push_back("dataset_info.json: d");
    expect_error<ConfigError>([&] { load(entry); }, parts);
  }
};

TEST(DatasetInfo, DefaultsAreLlamaFactorys) {
  const DatasetSpec spec = Info().load({{"file_name", "d.json"}});
  EXPECT_EQ(spec.columns.prompt, "instruction");
  EXPECT_EQ(spec.columns.query, "input");
  EXPECT_EQ(spec.columns.response, "output");
  EXPECT_EQ(spec.columns.messages, "conversations");
  EXPECT_EQ(spec.tags.assistant, "gpt");
  EXPECT_FALSE(spec.ranking);
}

TEST(DatasetInfo, ColumnsAndTagsReplaceAllDefaults) {
  const DatasetSpec spec = Info().load({{"file_name", "d.json"},
                                        {"formatting", "sharegpt"},
                                        {"columns", {{"messages", "m"}, {"query", nullptr}}},
                                        {"tags", {{"role_tag", "role"}, {"content_tag", "content"}}}});
  EXPECT_EQ(spec.columns.messages, "m");
  EXPECT_EQ(spec.columns.prompt, "");
  EXPECT_EQ(spec.tags.role, "role");
  EXPECT_EQ(spec.tags.user, "");
}

TEST(DatasetInfo, TakesTheCopyOfAFileThatIsNamedWhole) {
  const TempFolder original, copy;
  const std::string name = "d", file = original.path() / "d.json";
  for (const TempFolder* folder : {&original, &copy}) {
    folder->write("dataset_info.json", json{{"d", {{"file_name", file}}}}.dump());
    folder->write("d.json", "[{}]");
  }
  const auto files = [&](const qft::encode::HubFolders& folders) {
    return load_dataset_info(copy.path(), {&name, 1}, folders).front().files;
  };
  using Paths = std::vector<std::filesystem::path>;
  EXPECT_EQ(files({}), Paths{file});
  EXPECT_EQ(files({{original.path().string(), copy.path().string()}}), Paths{copy.path() / "d.json"});
}

TEST(DatasetInfo, NamesUnknownKeysWithTheNearestKnownOne) {
  const Info info;
  info.refuses({{"file_name", "d.json"}, {"columns", {{"promt", "a"}}}}, {"columns: promt: unknown key: did you mean 'prompt'?"});
  info.refuses({{"file_name", "d.json"}, {"columns", {{"zzzzzzzzz", "a"}}}}, {"the keys are prompt, query, response"});
  info.refuses({{"file_name", "d.json"}, {"formatting", "sharegpt"}, {"tags", {{"role_tga", "role"}}}},
               {"tags: role_tga", "'role_tag'"});
  // An entry may carry remarks, which LLaMA-Factory ignores.
  testing::internal::CaptureStderr();
  EXPECT_EQ(info.load({{"file_name", "d.json"}, {"formating", "alpaca"}, {"licence", "CC0"}, {"subset", "x"}}).name, "d");
  const std::string log = testing::internal::GetCapturedStderr();
  EXPECT_NE(log.find("d: formating: unknown key, ignored: did you mean 'formatting'?"), std::string::npos) << log;
  EXPECT_NE(log.find("d: licence: unknown key, ignored"), std::string::npos) << log;
  EXPECT_EQ(log.find("subset"), std::string::npos) << log;
}

TEST(DatasetInfo, AFolderStandsForItsFilesInOrder) {
  Info info;
  info.folder.write("many/b.json", "[{}]");
  info.folder.write("many/a.json", "[{}]");
  const DatasetSpec spec = info.load({{"file_name", "many"}});
  ASSERT_EQ(spec.files.size(), 2u);
  EXPECT_EQ(spec.files[0].filename(), "a.json");
  EXPECT_EQ(info.load({{"file_name", {"many/b.json", "d.json"}}}).files[1].filename(), "d.json");
}

TEST(DatasetInfo, RefusesWhatIsNotAFile) {
  Info info;
  info.refuses({{"hf_hub_url", "a/b"}}, {"qft fetch --dataset a/b"});
  info.refuses({{"ms_hub_url", "a/b"}, {"file_name", "d.json"}}, {"qft fetch --dataset a/b"});
  info.refuses({{"script_url", "s"}}, {"script_url"});
  info.refuses({{"cloud_file_name", "s3://x"}}, {"cloud_file_name"});
  info.refuses(json::object(), {"no file_name"});
  info.refuses({{"file_name", "absent.json"}}, {"there is no", "absent.json"});
  info.refuses({{"file_name", 5}}, {"expected a text, got 5"});
}

TEST(DatasetInfo, RefusesPathsOutOfTheFolder) {
  Info info;
  info.folder.write("sub/dataset_info.json", json{{"d", {{"file_name", "x/../../d.json"}}}}.dump());
  const std::string name = "d";
  expect_error<ConfigError>([&] { load_dataset_info(info.folder.path() / "sub", {&name, 1}); },
                            {"x/../../d.json", "leads out of", "absolute path"});
  const auto absolute = info.folder.path() / "d.json";
  EXPECT_EQ(info.load({{"file_name", absolute.string()}}).files.front(), absolute);
}

TEST(DatasetInfo, RefusesOtherFileTypes) {
  Info info;
  info.folder.write("d.tsv", "x");
  info.refuses({{"file_name", "d.tsv"}}, {"d.tsv", "JSON lines"});
  info.refuses({{"file_name", {"d.json", "t.txt"}}}, {"different types"});
}

TEST(DatasetInfo, RefusesWhatWouldBeIgnoredOtherwise) {
  Info info;
  const auto with = [](const char* key, const json& value) { return json{{"file_name", "d.json"}, {key, value}}; };
  info.refuses(with("formatting", "chatml"), {"chatml", "alpaca, sharegpt, openai or blocks"});
  info.refuses(with("ranking", "yes"), {"ranking", "true or false"});
  info.refuses(with("ranking", true), {"chosen and rejected"});
  info.refuses(with("num_samples", 0), {"num_samples", "at least 1"});
  info.refuses(with("split", "test"), {"has no split 'test'", "all its records are train"});
  info.refuses(with("split", "train[10%]"), {"train[10%]", "does not have the form"});
  info.refuses(with("split", "train[:120%]"), {"120%"});
  info.refuses(with("split", ""), {"split"});
  info.refuses(with("columns", {{"images", "image"}}), {"images", "text only"});
  info.refuses(with("columns", {{"prompt", 1}}), {"columns: prompt", "expected a text"});
  info.refuses({{"file_name", "d.json"}, {"formatting", "sharegpt"}, {"columns", json::object()}}, {"messages"});
  info.refuses({{"file_name", "d.json"}, {"formatting", "sharegpt"}, {"tags", {{"user_tag", "u"}}}}, {"role_tag"});
  info.refuses(5, {"expected an object"});
}

TEST(DatasetInfo, NamesMustBeThereAndOnce) {
  Info info;
  info.folder.write("dataset_info.json", "{\"a\": {}, \"b\": {}}");
  const auto load = [&](std::vector<std::string> names) { load_dataset_info(info.folder.path(), names); };
  expect_error<ConfigError>([&] { load({"c"}); }, {"no 'c'", "it has a, b"});
  info.folder.write("dataset_info.json", "{\"a\": {\"file_name\": \"d.json\"}}");
  expect_error<ConfigError>([&] { load({"a", "a"}); }, {"named twice"});
  info.folder.write("dataset_info.json", "{\"a\": ");
  expect_error<ConfigError>([&] { load({"a"}); }, {"dataset_info.json", "the text ends too early"});
  info.folder.write("dataset_info.json", "{\"a\": {\"file_name\": \"d.json\"},\n \"a\": {\"file_name\": \"e.json\"}}");
  expect_error<ConfigError>([&] { load({"a"}); }, {"dataset_info.json:2: the key 'a' appears twice", "first on line 1"});
  expect_error<ConfigError>([&] { load_dataset_info(info.folder.path() / "absent", {}); }, {"dataset_info.json"});
  expect_error<ConfigError>([&] { load_dataset_info("REMOTE:a/b", {}); }, {"dataset_dir", "qft fetch --dataset a/b"});
}

}  // namespace
