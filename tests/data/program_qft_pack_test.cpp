// qft-pack as a user runs it: exit codes, one result for any number of ranks, nothing done twice.
#include <cstdio>
#include <sys/wait.h>

#include "encode_fixture.h"
#include "test_paths.h"

namespace {

using nlohmann::json;
using qft::test::TempFolder;

struct Outcome {
  int code = -1;
  std::string out;
};

/// Runs a shell command; stderr goes to stdout where `merged`.
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
      records.push_back(
          {{"instruction", "q" + std::to_string(i)}, {"input", ""}, {"output", std::string(i % 9, 'a')}});
    folder.write("d.json", records.dump(1));
    folder.write("dataset_info.json", R"({"d": {"file_name": "d.json"}})");
    const std::string dir = folder.path().string();
    folder.write("run.yaml", "stage: sft\nmodel_name_or_path: " + dir + "\ndataset_dir: " + dir +
                                 "\ndataset: d\ntemplate: chatml\npreprocessing_batch_size: 7\n");
  }
  std::string pack(const std::string& name) const { return (folder.path() / name).string(); }
  Outcome make(const std::string& name, int ranks, const std::string& more = "") const {
    const std::string prefix = ranks == 1 ? ""
                                          : "mpirun --oversubscribe --bind-to none --allow-run-as-root -np " +
                                                std::to_string(ranks) + " ";
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

TEST_F(PackProgram, DoesNothingWhereThePackIsUpToDate) {
  ASSERT_EQ(make("p.h5", 1).code, 0);
  const auto time = std::filesystem::last_write_time(pack("p.h5"));
  EXPECT_NE(make("p.h5", 1).out.find("up to date"), std::string::npos);
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

TEST_F(PackProgram, ExitCodesTellUsageFromFailure) {
  EXPECT_EQ(run(program + " --help").code, 0);
  EXPECT_EQ(run(program + " --version").code, 0);
  EXPECT_EQ(run(program + " inspect").code, 2);
  EXPECT_EQ(run(program + " frobnicate x").code, 2);
  EXPECT_EQ(run(program + " " + run_file).code, 2);
  EXPECT_EQ(make("p.h5", 1, "dataset=other").code, 2);
  EXPECT_EQ(run(program + " inspect " + pack("absent.h5")).code, 1);
  folder.write("d.json", "[{\"instruction\": \"q\", \"input\": \"\", \"output\": 5}]");
  const Outcome empty = make("p.h5", 1);
  EXPECT_EQ(empty.code, 1);
  EXPECT_NE(empty.out.find("1 no answer"), std::string::npos) << empty.out;
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

}  // namespace
