// qft-pack from a user's view: exit codes, one result for any number of ranks, no work done twice.
#include <cstdio>
#include <sys/wait.h>

#include "encode/fixture.h"
#include "test_paths.h"

namespace {

using nlohmann::json;
using qft::test::TempFolder;

struct Outcome {
  int code = -1;
  std::string out;
};

/// Runs a shell command; stderr goes to stdout if `merged`.
Outcome run(const std::string& command, bool merged = false) {
  Outcome outcome;
  FILE* pipe = ::popen((command + (merged ? " 2>&1" : " 2>/dev/null")).c_str(), "r");
  char buffer[4096];
  for (std::size_t n; (n = std::fread(buffer, 1, sizeof buffer, pipe)) > 0;) outcome.out.append(buffer, n);
  const int status = ::pclose(pipe);
  outcome.code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  return outcome;
}

std::string read_file(const std::filesystem::path& path) {
  std::ifstream stream(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), {}};
}

struct PackProgram : testing::Test {
  TempFolder folder;
  std::string program = qft::test::kBinaryDir + "/bin/qft-pack";
  std::string run_file = (folder.path() / "run.yaml").string();

  PackProgram() {
    qft::test::write_byte_tokenizer(folder);
    json records = json::array();
    for (int i = 0; i < 50; ++i)
      records.push_back({{"instruction", "q" + std::to_string(i)}, {"input", ""}, {"output", std::string(1 + i % 9, 'a')}});
    folder.write("d.json", records.dump(1));
    folder.write("dataset_info.json", R"({"d": {"file_name": "d.json"}})");
    const std::string dir = folder.path().string();
    folder.write("run.yaml", "stage: sft\nmodel_name_or_path: " + dir + "\ndataset_dir: " + dir +
                                 "\ndataset: d\ntemplate: chatml\npreprocessing_batch_size: 7\n");
  }
  std::string pack(const std::string& name) const { return (folder.path() / name).string(); }
  Outcome make(const std::string& name, int ranks, const std::string& more = "") const {
    const std::string prefix =
        ranks == 1 ? "" : "mpirun --oversubscribe --bind-to none --allow-run-as-root -np " + std::to_string(ranks) + " ";
    return run(prefix + program + " " + run_file + " " + more + " --output " + pack(name), true);
  }
};

TEST_F(PackProgram, GivesTheSameBytesOnAnyNumberOfRanks) {
  ASSERT_EQ(make("one.h5", 1).code, 0);
  for (const int ranks : {2, 3}) {
    const std::string name = std::to_string(ranks) + ".h5";
    const Outcome made = make(name, ranks);
    ASSERT_EQ(made.code, 0) << made.out;
    EXPECT_EQ(read_file(pack(name)), read_file(pack("one.h5")));
  }
}

TEST_F(PackProgram, GivesTheSameBytesWithAnyNumberOfWorkers) {
  ASSERT_EQ(make("one.h5", 1, "--workers 1").code, 0);
  for (const std::string workers : {"2", "5"}) {
    const Outcome made = make(workers + ".h5", 1, "--workers " + workers);
    ASSERT_EQ(made.code, 0) << made.out;
    EXPECT_EQ(read_file(pack(workers + ".h5")), read_file(pack("one.h5")));
  }
  ASSERT_EQ(make("both.h5", 2, "--workers 3").code, 0);
  EXPECT_EQ(read_file(pack("both.h5")), read_file(pack("one.h5")));
  EXPECT_EQ(make("none.h5", 1, "--workers 0").code, 2);
  EXPECT_EQ(make("key.h5", 1, "preprocessing_num_workers=2").code, 0);
  EXPECT_EQ(read_file(pack("key.h5")), read_file(pack("one.h5")));
}

TEST_F(PackProgram, AnErrorOfOneWorkerStopsAll) {
  std::string lines = read_file(folder.path() / "d.json");
  lines.insert(lines.find("\"q31\""), "7 ");
  folder.write("d.json", lines);
  const Outcome made = make("p.h5", 1, "--workers 4");
  EXPECT_EQ(made.code, 1);
  EXPECT_NE(made.out.find("d.json:"), std::string::npos) << made.out;
  EXPECT_FALSE(std::filesystem::exists(pack("p.h5")));
}

TEST_F(PackProgram, DoesNothingWhereThePackIsUpToDate) {
  ASSERT_EQ(make("p.h5", 1).code, 0);
  const auto time = std::filesystem::last_write_time(pack("p.h5"));
  EXPECT_NE(make("p.h5", 1).out.find("is reused"), std::string::npos);
  EXPECT_EQ(std::filesystem::last_write_time(pack("p.h5")), time);
  const Outcome shorter = make("p.h5", 1, "cutoff_len=40");
  EXPECT_EQ(shorter.out.find("up to date"), std::string::npos);
  EXPECT_NE(std::filesystem::last_write_time(pack("p.h5")), time);
}

TEST_F(PackProgram, RepacksOverADamagedFile) {
  folder.write("p.h5", "no HDF5");
  const Outcome made = make("p.h5", 1);
  EXPECT_EQ(made.code, 0) << made.out;
  EXPECT_EQ(run(program + " verify " + pack("p.h5")).code, 0);
}

TEST_F(PackProgram, ExportPrintsEveryItemAndHeadTheFirst) {
  ASSERT_EQ(make("p.h5", 1).code, 0);
  const Outcome all = run(program + " export " + pack("p.h5"));
  std::istringstream lines(all.out);
  std::string line, first;
  int count = 0;
  for (; std::getline(lines, line); ++count) {
    const json item = json::parse(line);
    EXPECT_EQ(item.size(), 2u);
    EXPECT_EQ(item["label_spans"].size(), 1u);
    if (count == 0) first = line;
  }
  EXPECT_EQ(count, 50);
  EXPECT_EQ(run(program + " head --items 1 " + pack("p.h5")).out, first + "\n");
  EXPECT_EQ(json::parse(run(program + " inspect --json " + pack("p.h5")).out)["items"], 50);
  EXPECT_NE(run(program + " inspect " + pack("p.h5")).out.find("template chatml"), std::string::npos);
}

TEST_F(PackProgram, InspectCountsAndShowsWhatIsLearned) {
  ASSERT_EQ(make("p.h5", 1).code, 0);
  const std::string command = program + " inspect " + pack("p.h5");
  const json summary = json::parse(run(command + " --json").out);
  EXPECT_EQ(summary["categories"], json::parse(R"([{"name": "d", "items": 50, "tokens": )" + summary["tokens"].dump() + "}]"));
  std::int64_t items = 0, tokens = 0;
  for (const json& bucket : summary["length_histogram"]) {
    items += bucket["items"].get<std::int64_t>();
    tokens += bucket["tokens"].get<std::int64_t>();
  }
  EXPECT_EQ(items, 50);
  EXPECT_EQ(tokens, summary["tokens"]);
  EXPECT_FALSE(summary.contains("samples"));

  for (const std::string& tokenizer : {std::string(run_file), "tokenizer_name_or_path=" + folder.path().string()}) {
    const Outcome shown = run(command + " --items 2 " + tokenizer);
    EXPECT_EQ(shown.code, 0);
    EXPECT_NE(shown.out.find("assistant\n[[a<|im_end|>"), std::string::npos) << shown.out;
    EXPECT_EQ(shown.out.find("aaa<|im_end|>"), std::string::npos);
    EXPECT_EQ(shown.out.find('\x1b'), std::string::npos) << "colour is for terminals";
  }
  const Outcome coloured = run("script -qec '" + command + " " + run_file + "' /dev/null");
  if (coloured.code == 0) {
    EXPECT_NE(coloured.out.find("\x1b[32ma<|im_end|>"), std::string::npos) << coloured.out;
  }
  const json samples = json::parse(run(command + " --json --items 1 " + run_file).out)["samples"];
  ASSERT_EQ(samples.size(), 1u);
  EXPECT_EQ(samples[0]["record"], 0);
  EXPECT_EQ(samples[0]["sequences"][0][1], json::parse(R"({"text": "a<|im_end|>\n", "learned": true})"));

  TempFolder other;
  qft::test::write_byte_tokenizer(other, {{"eos_token", "<|im_end|>"}});
  const Outcome refused = run(command + " tokenizer_name_or_path=" + other.path().string(), true);
  EXPECT_EQ(refused.code, 2);
  EXPECT_NE(refused.out.find("was made with a tokenizer that has the hash"), std::string::npos) << refused.out;
}

TEST_F(PackProgram, MergesPacksOfTheSameContract) {
  json more = json::array();
  for (int i = 0; i < 20; ++i) more.push_back({{"instruction", "m" + std::to_string(i)}, {"input", ""}, {"output", "b"}});
  folder.write("e.json", more.dump());
  folder.write("dataset_info.json", R"({"d": {"file_name": "d.json"}, "e": {"file_name": "e.json"}})");
  ASSERT_EQ(make("d.h5", 1).code, 0);
  ASSERT_EQ(make("e.h5", 1, "dataset=e").code, 0);
  ASSERT_EQ(make("both.h5", 1, "dataset=d,e").code, 0);
  const std::string merge = program + " merge " + pack("d.h5") + " " + pack("e.h5");
  ASSERT_EQ(run(merge + " --output " + pack("m.h5")).code, 0);
  EXPECT_EQ(run(program + " verify " + pack("m.h5")).code, 0);
  EXPECT_EQ(run(program + " export " + pack("m.h5")).out, run(program + " export " + pack("both.h5")).out);
  const json merged = json::parse(run(program + " inspect --json " + pack("m.h5")).out),
             both = json::parse(run(program + " inspect --json " + pack("both.h5")).out);
  EXPECT_EQ(merged["sources"], both["sources"]);
  EXPECT_EQ(merged["categories"], both["categories"]);
  EXPECT_NE(run(merge + " --output " + pack("m.h5")).out.find("up to date"), std::string::npos);
  const Outcome parallel =
      run("mpirun --oversubscribe --bind-to none --allow-run-as-root -np 2 " + merge + " --output " + pack("m2.h5"));
  EXPECT_EQ(parallel.code, 0);
  EXPECT_EQ(read_file(pack("m2.h5")), read_file(pack("m.h5")));

  ASSERT_EQ(make("short.h5", 1, "dataset=e cutoff_len=77").code, 0);
  ASSERT_EQ(make("prompt.h5", 1, "dataset=e train_on_prompt=true").code, 0);
  const auto refusal = [&](const std::string& name, const std::vector<std::string>& parts) {
    const Outcome refused = run(program + " merge " + pack("d.h5") + " " + pack(name) + " -o " + pack("r.h5"), true);
    EXPECT_EQ(refused.code, 2);
    for (const std::string& part : parts)
      EXPECT_NE(refused.out.find(part), std::string::npos) << part << " is not in " << refused.out;
    EXPECT_FALSE(std::filesystem::exists(pack("r.h5")));
  };
  refusal("short.h5", {"cutoff_len", "2048", "77"});
  refusal("prompt.h5", {"train_on_prompt", "false", "true"});
  ASSERT_EQ(make("hermes.h5", 1, "dataset=e loss_scale=hermes").code, 0);
  refusal("hermes.h5", {"loss_scale is null", "hermes"});
  EXPECT_EQ(run(merge + " --output " + pack("e.h5")).code, 2);
  EXPECT_EQ(run(program + " merge " + pack("d.h5") + " --output " + pack("x.h5")).code, 2);
}

TEST_F(PackProgram, ExitCodesTellUsageFromFailure) {
  EXPECT_EQ(run(program + " --help").code, 0);
  EXPECT_EQ(run(program + " --version").code, 0);
  EXPECT_EQ(run(program + " inspect").code, 2);
  EXPECT_EQ(run(program + " frobnicate x").code, 2);
  EXPECT_EQ(run(program + " " + run_file).code, 2);
  EXPECT_EQ(make("p.h5", 1, "dataset=other").code, 2);
  EXPECT_EQ(run(program + " inspect " + pack("absent.h5")).code, 1);
  folder.write("d.json", "[{\"instruction\": \"q\", \"input\": \"\", \"output\": null}]");
  const Outcome empty = make("p.h5", 1);
  EXPECT_EQ(empty.code, 1);
  EXPECT_NE(empty.out.find("1 no answer"), std::string::npos) << empty.out;
}

TEST_F(PackProgram, SaysWhyADatasetIsLeftOutWhole) {
  folder.write("user.jsonl", R"({"conversations": [{"from": "clerk", "value": "q"}, {"from": "gpt", "value": "a"}]})"
                             "\n"
                             R"({"conversations": [{"from": "clerk", "value": "q"}, {"from": "gpt", "value": "a"}]})"
                             "\n");
  folder.write("dataset_info.json",
               R"({"d": {"file_name": "d.json"}, "user": {"file_name": "user.jsonl", "formatting": "sharegpt"}})");
  for (const std::string datasets : {"user", "d,user"}) {
    const Outcome none = make("u.h5", 1, "dataset=" + datasets);
    EXPECT_EQ(none.code, 1);
    EXPECT_NE(none.out.find("dataset 'user': none of its 2 records can be learned: 2 unknown role (the first: "),
              std::string::npos)
        << none.out;
    EXPECT_NE(none.out.find("user.jsonl:1: message 1 has the role 'clerk'; the roles are human, gpt, "), std::string::npos)
        << none.out;
    EXPECT_FALSE(std::filesystem::exists(pack("u.h5")));
  }
  std::filesystem::create_directory(folder.path() / "latin");
  folder.write(
      "latin/donn\xE9"
      "es.json",
      R"([{"instruction": "q", "input": "", "output": "a"}, {"instruction": "q", "input": "", "output": ""}])");
  folder.write("few.json", R"([{"instruction": "", "input": "", "output": ""}])");
  const Outcome beside = make("b.h5", 1, "dataset=" + pack("latin") + "," + pack("few.json"));
  EXPECT_EQ(beside.code, 0) << beside.out;
  const Outcome checked = run(program + " check " + run_file + " dataset=user");
  EXPECT_EQ(checked.code, 1);
  EXPECT_NE(checked.out.find("user.jsonl:2: message 1 has the role 'clerk'"), std::string::npos) << checked.out;
}

TEST_F(PackProgram, InspectSaysWhatIsNoPack) {
  ASSERT_EQ(make("p.h5", 1).code, 0);
  const auto refusal = [&](const std::string& name, const std::string& part) {
    const Outcome refused = run(program + " inspect " + name, true);
    EXPECT_EQ(refused.code, 2);
    EXPECT_NE(refused.out.find(part), std::string::npos) << refused.out;
  };
  folder.write("l.jsonl", "{}");
  refusal(pack("d.json"), "d.json' is a data file, not a pack: pack it with qft-pack RUN.yaml --dataset ");
  refusal(pack("l.jsonl"), "l.jsonl' is a data file, not a pack");
  refusal(run_file, "run.yaml' is a run file, not a pack: make its pack with qft-pack ");
  refusal(folder.path().string(), "' is a directory: name one of the packs in it: " + pack("p.h5"));
  std::filesystem::create_directory(folder.path() / "none");
  refusal(pack("none"), "none' is a directory and has no pack (.h5) in it");
  folder.write("l.h5", "version https://git-lfs.github.com/spec/v1\n");
  refusal(pack("l.h5"), "l.h5' is a Git LFS pointer");
}

TEST_F(PackProgram, FindsOneDamagedByte) {
  ASSERT_EQ(make("p.h5", 1).code, 0);
  std::string bytes = read_file(pack("p.h5"));
  const std::string token = run(program + " head --items 1 " + pack("p.h5")).out;
  const json ids = json::parse(token)["ids"];
  std::string needle;
  for (const std::int32_t id : ids) needle.append(reinterpret_cast<const char*>(&id), sizeof id);
  const std::size_t at = bytes.find(needle);
  ASSERT_NE(at, bytes.npos);
  bytes[at + 4] ^= 1;
  folder.write("p.h5", bytes);
  const Outcome verified = run(program + " verify " + pack("p.h5"), true);
  EXPECT_EQ(verified.code, 1);
  EXPECT_NE(verified.out.find("item 0"), std::string::npos) << verified.out;
}

TEST_F(PackProgram, ChecksDataAndCountsSteps) {
  const Outcome clean = run(program + " check " + run_file + " --json dataset=d");
  EXPECT_EQ(clean.code, 0) << clean.out;
  json report = json::parse(clean.out);
  EXPECT_EQ(report["records"], 50);
  EXPECT_EQ(report["findings"]["empty_output"]["count"], 0);
  EXPECT_EQ(report["findings"]["duplicate"]["count"], 0);

  folder.write("bad.jsonl",
               R"({"instruction":"a","output":"one"}
{"instruction":"a","output":"one"}
{"instruction":"b","output":
{"instruction":"c \ufffd","output":"two"}
{"instruction":"d"}
{"instruction":"this question is far too long for the cutoff of the run","output":"three"}
)");
  folder.write("dataset_info.json", R"({"d": {"file_name": "d.json"}, "bad": {"file_name": "bad.jsonl"}})");
  const Outcome bad = run(program + " check " + run_file +
                          " --json --ranks 2 dataset=bad cutoff_len=70 per_device_train_batch_size=1 "
                          "gradient_accumulation_steps=1 num_train_epochs=3");
  EXPECT_EQ(bad.code, 1);
  report = json::parse(bad.out);
  const auto count = [&](const char* kind) { return report["findings"][kind]["count"].get<int>(); };
  EXPECT_EQ(count("unreadable"), 1);
  EXPECT_EQ(count("duplicate"), 1);
  EXPECT_EQ(count("encoding"), 1);
  EXPECT_EQ(count("no_answer"), 1);
  EXPECT_EQ(count("over_long"), 1);
  EXPECT_EQ(count("empty_output"), 0);
  EXPECT_NE(report["findings"]["unreadable"]["examples"][0].get<std::string>().find("bad.jsonl:3"), std::string::npos);
  EXPECT_EQ(report["samples"], 4);
  EXPECT_EQ(report["global_batch_size"], 2);
  EXPECT_EQ(report["total_steps"], 6);
  EXPECT_FALSE(std::filesystem::exists(pack("out.h5")));

  folder.write("empty.jsonl", "{\"instruction\":\"a\",\"output\":\"one\"}\n{\"instruction\":\"b\",\"output\":\" \"}\n");
  folder.write("dataset_info.json", R"({"empty": {"file_name": "empty.jsonl"}})");
  const Outcome empty = run(program + " check " + run_file + " --json dataset=empty");
  EXPECT_EQ(empty.code, 1);
  EXPECT_EQ(json::parse(empty.out)["findings"]["empty_output"]["count"], 1);

  folder.write("good.jsonl", "{\"instruction\":\"a\",\"output\":\"one\"}\n");
  folder.write("dataset_info.json", R"({"good": {"file_name": "good.jsonl"}})");
  EXPECT_EQ(run(program + " check " + run_file + " dataset=good").code, 0);

  folder.write("good.jsonl",
               R"({"instruction":"a","output":"one","source":"<|im_end|>"}
{"instruction":"b","input":"\u003c|im_start|>","output":"two <|im_end|>"}
{"instruction":"c","output":"three <|im_end"}
)");
  const Outcome special = run(program + " check " + run_file + " --json dataset=good");
  EXPECT_EQ(special.code, 0) << special.out;  // a warning, not an error
  report = json::parse(special.out);
  EXPECT_EQ(count("special_token"), 1);  // in texts that are read, in any spelling
  EXPECT_NE(report["findings"]["special_token"]["examples"][0].get<std::string>().find("good.jsonl:2: input: <|im_start|>"),
            std::string::npos)
      << special.out;
}

TEST_F(PackProgram, SkippedRecordsAreListedAndLimited) {
  folder.write("bad.jsonl", "{\"instruction\":\"a\",\"output\":\"one\"}\n{\n{\"instruction\":3,\"output\":\"x\"}\n");
  folder.write("dataset_info.json", R"({"d": {"file_name": "bad.jsonl"}})");
  const Outcome skipped = make("out.h5", 2, "on_error=skip");
  ASSERT_EQ(skipped.code, 0) << skipped.out;
  const std::string list = read_file(pack("out.h5.skipped"));
  EXPECT_NE(list.find("bad.jsonl:2: "), list.npos) << list;
  EXPECT_NE(list.find("bad.jsonl:3: "), list.npos) << list;
  const Outcome limited = make("limited.h5", 2, "on_error=skip on_error_limit=1");
  EXPECT_NE(limited.code, 0);
  EXPECT_NE(limited.out.find("on_error_limit 1"), limited.out.npos) << limited.out;
  EXPECT_FALSE(std::filesystem::exists(pack("limited.h5")));
}

TEST_F(PackProgram, ABottomlessRecordIsABrokenOne) {
  const json deep = {{"instruction", "q"}, {"output", "a"}, {"tools", std::string(200'000, '[') + std::string(200'000, ']')}};
  folder.write("deep.jsonl", "{\"instruction\":\"a\",\"output\":\"one\",\"tools\":\"\"}\n" + deep.dump() + "\n");
  folder.write(
      "dataset_info.json",
      json{{"d",
            {{"file_name", "deep.jsonl"}, {"columns", {{"prompt", "instruction"}, {"response", "output"}, {"tools", "tools"}}}}}}
          .dump());
  const Outcome stopped = make("out.h5", 1);
  EXPECT_EQ(stopped.code, 1) << stopped.out;
  EXPECT_NE(stopped.out.find("deep.jsonl:2: tools: nested more than 1024 deep"), stopped.out.npos) << stopped.out;
  EXPECT_EQ(make("out.h5", 1, "on_error=skip").code, 0);
}

TEST_F(PackProgram, AFullDiskNamesTheFileAndLeavesNoPack) {
  std::string records;
  for (int i = 0; i < 4000; ++i)
    records += "{\"instruction\":\"question " + std::to_string(i) + "\",\"output\":\"" + std::string(200, 'a') + "\"}\n";
  folder.write("large.jsonl", records);
  folder.write("dataset_info.json", R"({"d": {"file_name": "large.jsonl"}})");
  // A file size limit simulates a full disk: the shell ignores its signal, so that write() fails.
  const Outcome full = run(
      "trap '' XFSZ; ulimit -f 1500; " + program + " " + run_file + " preprocessing_batch_size=500 --output " + pack("full.h5"),
      true);
  EXPECT_NE(full.code, 0) << full.out;
  EXPECT_NE(full.out.find("full.h5"), full.out.npos) << full.out;
  EXPECT_FALSE(std::filesystem::exists(pack("full.h5")));
  EXPECT_EQ(make("full.h5", 1, "preprocessing_batch_size=500").code, 0);
}

}  // namespace
