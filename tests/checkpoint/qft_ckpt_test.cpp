// The program itself: exit codes, output streams.
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
  const int status =
      std::system((kBinaryDir + "/bin/qft-ckpt " + arguments + " >" + out + " 2>" + err).c_str());
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

TEST(QftCkpt, IsLight) {
  const TempDir dir;
  ASSERT_EQ(std::system(("ldd " + kBinaryDir + "/bin/qft-ckpt >" + (dir / "libs").string()).c_str()), 0);
  EXPECT_EQ(read_bytes(dir / "libs").find("libtorch"), std::string::npos);
}

}  // namespace qft
