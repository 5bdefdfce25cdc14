// Tests of the program: exit codes, output streams.
#include <cstdlib>
#include <filesystem>
#include <string>
#include <sys/wait.h>

#include "checkpoint/sample.h"
#include "io/temp_dir.h"
#include "test_paths.h"
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace qft {

namespace fs = std::filesystem;
using test::contains;
using test::kBinaryDir;
using test::read_bytes;
using test::TempDir;
using test::write_bytes;

struct Outcome {
  int code;
  std::string out, err;
};

Outcome run(const TempDir& dir, const std::string& arguments) {
  const std::string out = (dir / "out.txt").string(), err = (dir / "err.txt").string();
  const int status = std::system((kBinaryDir + "/bin/qft-ckpt " + arguments + " >" + out + " 2>" + err).c_str());
  return {WEXITSTATUS(status), read_bytes(out), read_bytes(err)};
}

fs::path save(const fs::path& dir, std::int64_t step) {
  const auto comm = comm::make_self_communicator();
  checkpoint::SaveOptions options;
  options.output_dir = dir;
  options.step = step;
  return test::save_sample(*comm, io::posix_storage(), options, 1);
}

TEST(QftCkpt, ExitsZeroOneOrTwo) {
  const TempDir dir;
  const std::string good = save(dir / "run", 10).string();
  EXPECT_EQ(run(dir, "--help").code, 0);
  EXPECT_TRUE(contains(run(dir, "--version").out, "qft-ckpt 0."));
  EXPECT_EQ(run(dir, "").code, 2);
  EXPECT_EQ(run(dir, "repair " + good).code, 2);
  EXPECT_TRUE(contains(run(dir, "repair " + good).err, "inspect"));
  EXPECT_EQ(run(dir, "verify").code, 2);
  EXPECT_EQ(run(dir, "verify --deep " + good).code, 2);
  EXPECT_EQ(run(dir, "verify " + (dir / "none").string()).code, 1);
  EXPECT_EQ(run(dir, "verify " + good).code, 0);
  EXPECT_EQ(run(dir, "inspect " + good).code, 0);
  write_bytes(fs::path(good) / "trainer_state.json", "{}");
  const Outcome bad = run(dir, "verify " + good);
  EXPECT_EQ(bad.code, 1);
  EXPECT_TRUE(contains(bad.out + bad.err, "trainer_state.json"));
}

TEST(QftCkpt, AnOutputDirectoryMeansItsCheckpoints) {
  const TempDir dir;
  save(dir / "run", 10);
  const fs::path newer = save(dir / "run", 20);
  const Outcome inspect = run(dir, "inspect --json " + (dir / "run").string());
  EXPECT_EQ(inspect.code, 0);
  const auto list = nlohmann::json::parse(inspect.out);
  ASSERT_EQ(list.size(), 2u);
  EXPECT_EQ(list[1]["step"], 20);
  fs::remove(newer / "manifest.json");
  const Outcome verify = run(dir, "verify --json " + (dir / "run").string());
  EXPECT_EQ(verify.code, 1);
  const auto reports = nlohmann::json::parse(verify.out);
  EXPECT_EQ(reports[0]["ok"], true);
  EXPECT_EQ(reports[1]["ok"], false);
}

TEST(QftCkpt, DiffTellsEqualDifferentAndNotCompared) {
  const TempDir dir;
  const std::string a = save(dir / "a", 10).string(), b = save(dir / "b", 10).string(), c = save(dir / "c", 11).string();
  EXPECT_EQ(run(dir, "diff " + a + " " + b).code, 0);
  const Outcome different = run(dir, "diff " + a + " " + c);
  EXPECT_EQ(different.code, 1);
  EXPECT_TRUE(contains(different.out, "step"));
  EXPECT_EQ(run(dir, "diff " + a + " " + (dir / "none").string()).code, 2);
  EXPECT_EQ(run(dir, "diff " + a).code, 2);
  EXPECT_EQ(run(dir, "diff " + a + " " + b + " " + c).code, 2);
  const auto json = nlohmann::json::parse(run(dir, "--json diff " + a + " " + b).out);
  EXPECT_EQ(json["identical"], true);
}

TEST(QftCkpt, ReshardsAndRefuses) {
  const TempDir dir;
  const std::string a = save(dir / "a", 10).string(), to = (dir / "new").string();
  EXPECT_EQ(run(dir, "reshard " + a + " --output " + to).code, 2);
  EXPECT_EQ(run(dir, "reshard " + a + " --ranks 3").code, 2);
  EXPECT_EQ(run(dir, "reshard " + a + " --ranks 3 --output " + to).code, 0);
  EXPECT_EQ(run(dir, "reshard " + a + " --ranks 3 --output " + to).code, 2);
  EXPECT_EQ(run(dir, "verify " + to).code, 0);
  EXPECT_EQ(run(dir, "diff " + a + " " + to).code, 0);
  EXPECT_EQ(run(dir, "diff --strict " + a + " " + to).code, 1);
  const Outcome parent = run(dir, "reshard " + (dir / "a").string() + " --ranks 3 --output " + (dir / "other").string());
  EXPECT_EQ(parent.code, 2);
  EXPECT_TRUE(contains(parent.err, "give one, such as '" + a + "'")) << parent.err;
  const Outcome misnamed = run(dir, "reshard " + a + " --ranks 3 --output " + (dir / "b/checkpoint-11").string());
  EXPECT_EQ(misnamed.code, 2);
  EXPECT_TRUE(contains(misnamed.err, "is the name of step 11")) << misnamed.err;
}

TEST(QftCkpt, GcSaysWhatItWouldDo) {
  const TempDir dir;
  save(dir / "run", 10);
  save(dir / "run", 20);
  write_bytes(dir / "run/tmp-checkpoint-30.0a1b2c3d/a", "x");
  const std::string all = "gc " + (dir / "run").string() + " --keep 1 --min-age 0";
  const Outcome dry = run(dir, all + " --dry-run");
  EXPECT_EQ(dry.code, 0);
  EXPECT_TRUE(contains(dry.out, "remove " + (dir / "run/checkpoint-10").string()));
  EXPECT_TRUE(contains(dry.out, "nothing was removed"));
  EXPECT_TRUE(fs::exists(dir / "run/checkpoint-10") && fs::exists(dir / "run/tmp-checkpoint-30.0a1b2c3d"));
  EXPECT_EQ(run(dir, "gc " + (dir / "run").string()).code, 0);
  EXPECT_TRUE(fs::exists(dir / "run/checkpoint-10") && fs::exists(dir / "run/tmp-checkpoint-30.0a1b2c3d"));
  EXPECT_EQ(run(dir, all).code, 0);
  EXPECT_FALSE(fs::exists(dir / "run/checkpoint-10") || fs::exists(dir / "run/tmp-checkpoint-30.0a1b2c3d"));
  EXPECT_TRUE(fs::exists(dir / "run/checkpoint-20"));
  EXPECT_EQ(run(dir, "gc " + (dir / "run").string() + " --keep 0").code, 2);
}

TEST(QftCkpt, MergeSaysWhatIsMissing) {
  const TempDir dir;
  const std::string a = save(dir / "a", 10).string(), to = " --output " + (dir / "new").string();
  const Outcome base = run(dir, "merge " + a + to);
  EXPECT_EQ(base.code, 2);
  EXPECT_TRUE(contains(base.err, "models/qwen"));
  EXPECT_TRUE(contains(base.err, "--base"));
  EXPECT_EQ(run(dir, "merge " + a).code, 2);
  EXPECT_TRUE(contains(run(dir, "merge " + (dir / "a").string() + to).err, "it is not an adapter"));
  EXPECT_TRUE(contains(run(dir, "merge " + a + to + " --base nowhere").err, "base model 'nowhere' does not exist"));
  EXPECT_FALSE(fs::exists(dir / "new"));
}

TEST(QftCkpt, IsLight) {
  const TempDir dir;
  ASSERT_EQ(std::system(("ldd " + kBinaryDir + "/bin/qft-ckpt >" + (dir / "libs").string()).c_str()), 0);
  EXPECT_EQ(read_bytes(dir / "libs").find("libtorch"), std::string::npos);
}

}  // namespace qft
