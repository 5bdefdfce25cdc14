#include "train/resume.h"

#include "qft/checkpoint/manifest.h"
#include "qft/io/file.h"
#include "qft/io/storage.h"

#include "io/temp_dir.h"
#include <gtest/gtest.h>

namespace qft::train {
namespace {

namespace fs = std::filesystem;

BestModel measured_at(std::int64_t step, double metric) {
  BestModel best;
  best.observe(metric, step, false);
  best.saved("checkpoint-" + std::to_string(step), step);
  return best;
}

/// Writes a run's checkpoint with this record of the best one.
void write_checkpoint(const fs::path& dir, std::int64_t step, const nlohmann::json& best) {
  checkpoint::Manifest manifest;
  manifest.step = step;
  manifest.run = {std::string(32, 'a'), 1, {}};
  manifest.state = {{"progression", {{"best", best}}}};
  fs::create_directories(dir);
  io::write_file(io::posix_storage(), dir / checkpoint::kManifestFile, manifest.to_text());
}

/// Writes a checkpoint that was evaluated at its own step.
void write_checkpoint(const fs::path& dir, std::int64_t step, double metric) {
  write_checkpoint(dir, step, to_json(measured_at(step, metric)));
}

class CheckBest : public ::testing::Test {
 protected:
  std::string found(double metric) {
    BestModel best = measured_at(2, metric);
    check_best(best, dir_.path(), *comm_);
    return best.checkpoint;
  }
  test::TempDir dir_;
  std::unique_ptr<comm::Communicator> comm_ = comm::make_self_communicator();
};

TEST_F(CheckBest, TakesTheCheckpointThatWasMeasuredSo) {
  write_checkpoint(dir_.path() / "checkpoint-2", 2, 1.1);
  EXPECT_EQ(found(1.1), "checkpoint-2");
}

TEST_F(CheckBest, TakesNoneOfAnotherBranchWithItsName) {
  write_checkpoint(dir_.path() / "checkpoint-2", 2, 1.5);
  EXPECT_EQ(found(1.1), "");
}

TEST_F(CheckBest, FindsTheOneThatLostItsNameToAnotherBranch) {
  write_checkpoint(dir_.path() / "checkpoint-2", 2, 1.5);
  write_checkpoint(dir_.path() / "abandoned-checkpoint-2-0123abcd", 2, 1.1);
  EXPECT_EQ(found(1.1), "abandoned-checkpoint-2-0123abcd");
}

TEST_F(CheckBest, PassesOverWhatCannotBeRead) {
  const nlohmann::json healthy = to_json(measured_at(2, 1.1));
  nlohmann::json infinite = healthy, damaged = healthy;
  infinite["at_checkpoint"]["metric"] = nullptr;
  damaged["at_checkpoint"]["metric"] = "1.1";
  write_checkpoint(dir_.path() / "abandoned-checkpoint-2-01234567", 2, infinite);
  write_checkpoint(dir_.path() / "abandoned-checkpoint-2-12345678", 2, damaged);
  write_checkpoint(dir_.path() / "abandoned-checkpoint-2-23456789", 2, nlohmann::json("none"));
  EXPECT_EQ(found(1.1), "");
  write_checkpoint(dir_.path() / "checkpoint-2", 2, healthy);
  EXPECT_EQ(found(1.1), "checkpoint-2");
}

TEST_F(CheckBest, ForgetsTheOneThatIsGone) {
  EXPECT_EQ(found(1.1), "");
}

}  // namespace
}  // namespace qft::train
