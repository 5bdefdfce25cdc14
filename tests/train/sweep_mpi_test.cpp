// Tests what a sweep passes to each of its runs. Their training is faked.
#include "qft/checkpoint/manifest.h"
#include "qft/comm/exchange.h"
#include "qft/config/run_config.h"
#include "qft/core/error.h"
#include "qft/io/storage.h"
#include "qft/train/sweep.h"

#include <fstream>

#include "io/temp_dir.h"
#include <gtest/gtest.h>

namespace qft::train {
namespace {

namespace fs = std::filesystem;

class SweepTest : public ::testing::Test {
 protected:
  SweepTest() : dir_(comm::on_root(world(), [&] { return own_.path().string(); })) {}
  void TearDown() override { world().barrier(); }  // before the folder is removed
  static comm::Session& session() { return comm::Session::current(); }
  static comm::Communicator& world() { return session().world(); }
  static bool is_root() { return session().rank() == 0; }

  std::vector<config::SweepRun> plan(const std::string& more = "overwrite_output_dir=true") const {
    config::CommandLine line;
    line.overrides = {"model_name_or_path=m", "dataset=d", "template=qwen", "output_dir=" + dir_.string(), more};
    return config::plan_sweep(line, std::vector<std::string>{"seed=1,2,3"});
  }
  void write(const fs::path& file) const {
    if (!is_root()) return;
    fs::create_directories(file.parent_path());
    std::ofstream(file) << "x";
  }
  static void save(const fs::path& dir, std::int64_t step) {
    if (!is_root()) return;
    checkpoint::Manifest manifest;
    manifest.step = step;
    manifest.run = {std::string(32, 'a'), 1, {}};
    const fs::path checkpoint = dir / ("checkpoint-" + std::to_string(step));
    fs::create_directories(checkpoint);
    io::write_file(io::posix_storage(), checkpoint / checkpoint::kManifestFile, manifest.to_text());
  }
  /// Trains the sweep. Run `stops` (from 1 on) is asked to stop. "1 -2": run 1 may overwrite, run 2 may not.
  std::string sweep(const std::vector<config::SweepRun>& runs, std::int64_t stops = 0) {
    std::string told;
    code_ = run_sweep(runs, session(), [&](const config::CommandLine& line, const auto&) {
      const auto t = line.load(config::Purpose::train).training;
      told += (told.empty() ? "" : " ") + std::to_string(t.overwrite_output_dir ? t.seed : -t.seed);
      if (t.seed == stops) return static_cast<int>(kExitRequeue);
      save(t.output_dir, 10);
      return static_cast<int>(kExitOk);
    });
    world().barrier();
    return told;
  }
  test::TempDir own_;
  fs::path dir_;  ///< rank 0's
  int code_ = -1;
};

TEST_F(SweepTest, KeepsFinishedRunsUntilAllAreDone) {
  EXPECT_EQ(sweep(plan(), 2), "1 2");
  EXPECT_EQ(code_, kExitRequeue);
  EXPECT_EQ(sweep(plan(), 3), "-1 2 3") << "the same command leaves run 1 alone";
  EXPECT_EQ(sweep(plan()), "-1 -2 3");
  EXPECT_EQ(code_, kExitOk);
  EXPECT_EQ(sweep(plan()), "1 2 3") << "the sweep was over";
}

TEST_F(SweepTest, OverwritesWhatIsNoResultOfIt) {
  sweep(plan(), 3);
  save(dir_ / "seed=1", 20);
  world().barrier();
  EXPECT_EQ(sweep(plan(), 3), "1 -2 3") << "run 1 was trained further by another command";
  auto other = plan();
  for (auto& run : other) run.line.overrides.emplace_back("learning_rate=0.5");
  EXPECT_EQ(sweep(other, 3), "1 2 3") << "other settings";
  for (auto& run : other) run.line.overrides.emplace_back("resume_from_checkpoint=false");
  EXPECT_EQ(sweep(other), "1 2 3") << "a fresh start was asked for";
}

TEST_F(SweepTest, SharesPacksOnceTheFolderIsAccepted) {
  const auto runs = plan();
  write(dir_ / "seed=1/packs/train.h5");
  world().barrier();
  const auto there = [&] { return fs::exists(dir_ / "seed=2/packs/train.h5"); };
  bool before = true, after = false;
  run_of_sweep(runs, runs[1], session(), [&](const auto&, const auto& accepted) {
    before = there();
    world().barrier();
    if (is_root()) accepted();
    world().barrier();
    after = there();
    return 0;
  });
  EXPECT_FALSE(before);
  EXPECT_TRUE(after);
}

TEST_F(SweepTest, OneRunRefusesAFolderThatIsARunItself) {
  const auto runs = plan();
  write(dir_ / "run.json");
  world().barrier();
  EXPECT_THROW(run_of_sweep(runs, runs[1], session(), [](const auto&, const auto&) { return 0; }), ConfigError);
  EXPECT_THROW(run_sweep(runs, session(), [](const auto&, const auto&) { return 0; }), ConfigError);
}

}  // namespace
}  // namespace qft::train
