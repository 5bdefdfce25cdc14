// The order of checkpoints in an output directory: runs, branches, other programs.
#include "qft/checkpoint/branch.h"

#include "qft/checkpoint/gc.h"
#include "qft/core/log.h"

#include <filesystem>
#include <string>

#include "checkpoint/sample.h"
#include "io/temp_dir.h"
#include <gtest/gtest.h>

namespace qft::checkpoint {

namespace fs = std::filesystem;
using test::contains;
using test::error_of;
using test::TempDir;
using test::write_bytes;

class BranchTest : public testing::Test {
 protected:
  void SetUp() override { log::init({.level = log::Severity::error}); }

  fs::path save(const RunRecord& run, std::int64_t step, std::optional<std::int64_t> limit = {}) {
    const auto comm = comm::make_self_communicator();
    SaveOptions options{.output_dir = dir_.path(), .step = step, .save_total_limit = limit, .run = run};
    return test::save_sample(*comm, io::posix_storage(), options, static_cast<int>(step));
  }
  std::vector<std::string> names(const std::vector<fs::path>& paths) const {
    std::vector<std::string> list;
    for (const fs::path& path : paths) list.push_back(path.filename().string());
    return list;
  }
  std::vector<std::string> order(const std::optional<BranchPoint>& from = {}) const {
    return names(resume_order(dir_.path(), from));
  }
  std::vector<std::string> all() const { return io::posix_storage().list(dir_.path()); }
  using Names = std::vector<std::string>;

  TempDir dir_;
};

TEST_F(BranchTest, ARunThatGoesOnKeepsItsIdAndANamedStartIsABranch) {
  const RunRecord a = next_run(dir_.path(), {}, false);
  EXPECT_EQ(a.id.size(), 32u);
  EXPECT_EQ(a.number, 1);
  EXPECT_FALSE(a.parent);
  const fs::path at_5 = save(a, 5);
  EXPECT_EQ(next_run(dir_.path(), at_5, false).id, a.id);
  const RunRecord b = next_run(dir_.path(), at_5, true);
  EXPECT_NE(b.id, a.id);
  EXPECT_EQ(b.number, 2);
  EXPECT_EQ(b.parent->run, a.id);
  EXPECT_EQ(b.parent->step, 5);
  EXPECT_EQ(Manifest::read(save(b, 6)).run.parent->checksum, Manifest::read(at_5).checksum);
  // A return to an abandoned run also begins a branch.
  EXPECT_EQ(next_run(dir_.path(), at_5, false).number, 3);
}

TEST_F(BranchTest, AnAbandonedBranchDoesNotWinByStepNumber) {
  const RunRecord a = next_run(dir_.path(), {}, false);
  const fs::path at_5 = save(a, 5);
  for (const int step : {10, 90}) save(a, step);
  EXPECT_EQ(order(), (Names{"checkpoint-90", "checkpoint-10", "checkpoint-5"}));
  save(next_run(dir_.path(), at_5, true), 7);
  EXPECT_EQ(order(), (Names{"checkpoint-7", "checkpoint-5", "checkpoint-90", "checkpoint-10"}));
}

TEST_F(BranchTest, ABranchIsFoundByWhereItBegan) {
  const RunRecord a = next_run(dir_.path(), {}, false);
  const fs::path at_5 = save(a, 5), at_9 = save(a, 9);
  EXPECT_EQ(order(branch_point(at_5)), Names{});
  const RunRecord b = next_run(dir_.path(), at_5, true);
  const fs::path at_7 = save(b, 7);
  save(b, 8);
  EXPECT_EQ(order(branch_point(at_5)), (Names{"checkpoint-8", "checkpoint-7"}));
  EXPECT_EQ(order(branch_point(at_9)), Names{});
  // A branch of the branch counts as begun there, too.
  save(next_run(dir_.path(), at_7, true), 11);
  EXPECT_EQ(order(branch_point(at_5)).front(), "checkpoint-11");
  // After the parent's removal its path still names it.
  fs::remove_all(at_5);
  EXPECT_EQ(order(branch_point(at_5)).front(), "checkpoint-11");
  // Another checkpoint under the same path is another parent.
  save({"ff", 9, {}}, 5);
  EXPECT_EQ(order(branch_point(at_5)), Names{});
}

TEST_F(BranchTest, AnAbandonedBranchGoesFirstInRetention) {
  const RunRecord a = next_run(dir_.path(), {}, false);
  const fs::path at_5 = save(a, 5);
  for (const int step : {50, 60}) save(a, step);
  const RunRecord b = next_run(dir_.path(), at_5, true);
  save(b, 10, 3);
  EXPECT_EQ(all(), (Names{"checkpoint-10", "checkpoint-5", "checkpoint-60"}));
  save(b, 15, 3);
  EXPECT_EQ(all(), (Names{"checkpoint-10", "checkpoint-15", "checkpoint-5"}));
  save(b, 20, 3);
  EXPECT_EQ(all(), (Names{"checkpoint-10", "checkpoint-15", "checkpoint-20"}));
}

TEST_F(BranchTest, ACheckpointOfAnotherBranchIsSetAsideNotReplaced) {
  const RunRecord a = next_run(dir_.path(), {}, false);
  const fs::path at_5 = save(a, 5);
  save(a, 10);
  const RunRecord b = next_run(dir_.path(), at_5, true);
  EXPECT_EQ(Manifest::read(save(b, 10)).run.id, b.id);
  const std::string aside = "abandoned-checkpoint-10-" + a.id.substr(0, 8);
  EXPECT_EQ(all(), (Names{aside, "checkpoint-10", "checkpoint-5"}));
  EXPECT_EQ(Manifest::read(dir_ / aside).run.id, a.id);
  EXPECT_EQ(order(), (Names{"checkpoint-10", "checkpoint-5", aside}));
  const auto plan = plan_gc(dir_.path(), {2, {}});
  EXPECT_EQ(plan.back().path.filename(), aside);
  EXPECT_TRUE(plan.back().remove);
  EXPECT_TRUE(contains(plan.back().reason, "abandoned branch"));
  save(b, 15, 2);
  EXPECT_EQ(all(), (Names{"checkpoint-10", "checkpoint-15"}));
}

TEST_F(BranchTest, WhatAnotherProgramWroteIsNeitherUsedNorRemovedNorReplaced) {
  write_bytes(dir_ / "checkpoint-3/model.safetensors", "another program's");
  write_bytes(dir_ / "checkpoint-900/trainer_state.json", "{}");
  write_bytes(dir_ / "checkpoint-800/manifest.json", R"({"files": []})");
  const RunRecord a = next_run(dir_.path(), {}, false);
  for (const int step : {1, 2}) save(a, step, 1);
  const Names theirs{"checkpoint-3", "checkpoint-800", "checkpoint-900"};
  EXPECT_EQ(all(), (Names{"checkpoint-2", "checkpoint-3", "checkpoint-800", "checkpoint-900"}));
  EXPECT_EQ(order(), Names{"checkpoint-2"});
  EXPECT_TRUE(contains(error_of([&] { save(a, 3); }), "is not a checkpoint of qft"));
  remove_ours(io::posix_storage(), dir_.path());
  EXPECT_EQ(all(), theirs);
  EXPECT_EQ(test::read_bytes(dir_ / "checkpoint-3/model.safetensors"), "another program's");
}

TEST_F(BranchTest, CheckpointsFromBeforeThereWereIdsAreOneRunThatABranchGoesOnFrom) {
  for (const int step : {1, 2}) save({}, step);
  EXPECT_EQ(order(), (Names{"checkpoint-2", "checkpoint-1"}));
  const RunRecord b = next_run(dir_.path(), dir_ / "checkpoint-2", false);
  EXPECT_EQ(b.number, 1);
  EXPECT_EQ(b.parent->step, 2);
  save(b, 3);
  EXPECT_EQ(order(), (Names{"checkpoint-3", "checkpoint-2", "checkpoint-1"}));
}

TEST_F(BranchTest, OneWithoutTrainingStateComesLast) {
  const RunRecord a = next_run(dir_.path(), {}, false);
  save(a, 4);
  const auto comm = comm::make_self_communicator();
  CheckpointWriter model_only(*comm, io::posix_storage(), {.output_dir = dir_.path(), .step = 6, .run = a});
  model_only.commit({});
  EXPECT_EQ(order(), (Names{"checkpoint-4", "checkpoint-6"}));
}

TEST_F(BranchTest, ADamagedOneIsSetAsideToo) {
  const RunRecord a = next_run(dir_.path(), {}, false);
  for (const int step : {4, 6}) save(a, step);
  write_bytes(dir_ / "checkpoint-6/manifest.json", R"({"format": "qft checkpoint", )");
  EXPECT_EQ(order(), (Names{"checkpoint-6", "checkpoint-4"}));  // rejected later, by name
  save(a, 6);
  EXPECT_EQ(order().front(), "checkpoint-6");
  EXPECT_EQ(all().size(), 3u);
}

TEST_F(BranchTest, ALostLockEndsASave) {
  auto context = io::this_process("qft train");
  context.beats = false;
  io::DirLock lock(dir_.path(), context);
  const auto comm = comm::make_self_communicator();
  CheckpointWriter writer(*comm, io::posix_storage(), {.output_dir = dir_.path(), .step = 6, .lock = &lock});
  write_bytes(dir_ / io::kLockFile, R"({"program": "another", )");
  EXPECT_TRUE(contains(error_of([&] { writer.commit({}); }), "was taken over by"));
  EXPECT_FALSE(fs::exists(dir_ / "checkpoint-6"));
}

}  // namespace qft::checkpoint
