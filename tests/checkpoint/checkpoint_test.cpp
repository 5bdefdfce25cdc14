#include "qft/checkpoint/checkpoint.h"

#include "qft/checkpoint/verify.h"
#include "qft/core/log.h"

#include <filesystem>
#include <numeric>
#include <string>

#include "checkpoint/sample.h"
#include "io/fault_storage.h"
#include "io/temp_dir.h"
#include <gtest/gtest.h>

namespace qft::checkpoint {

namespace fs = std::filesystem;
using test::contains;
using test::error_of;
using test::Fault;
using test::FaultStorage;
using test::read_bytes;
using test::read_sample;
using test::save_sample;
using test::TempDir;
using test::write_bytes;

fs::path save(const fs::path& dir, std::int64_t step, int version, SaveOptions options = {},
              io::Storage& storage = io::posix_storage()) {
  const auto comm = comm::make_self_communicator();
  options.output_dir = dir;
  options.step = step;
  return save_sample(*comm, storage, options, version);
}

std::vector<std::int64_t> steps_in(const fs::path& dir) {
  std::vector<std::int64_t> steps;
  for (const Candidate& c : list_checkpoints(dir)) steps.push_back(c.step);
  return steps;
}

TEST(Checkpoint, NamesAreExact) {
  EXPECT_EQ(step_of("checkpoint-0"), 0);
  EXPECT_EQ(step_of(directory_name(12345)), 12345);
  for (const char* name : {"checkpoint-", "checkpoint-07", "checkpoint--1", "checkpoint-+1", "checkpoint-1a", "tmp-checkpoint-1",
                           "checkpoint-99999999999999999999", "Checkpoint-1"})
    EXPECT_FALSE(step_of(name)) << name;
}

TEST(Checkpoint, ReadsAnyRangeOfWhatWasSaved) {
  const TempDir dir;
  const fs::path path = save(dir.path(), 10, 1);
  EXPECT_EQ(path, dir / "checkpoint-10");
  const Checkpoint checkpoint = Checkpoint::open(path);
  EXPECT_EQ(read_sample(checkpoint), 1);
  EXPECT_TRUE(verify(path).ok());
  std::string bytes(4 * 17, ' ');
  checkpoint.read_tensor_range("layers.0.weight", 101, 118, bytes.data());
  for (std::size_t i = 0; i < bytes.size(); ++i) EXPECT_EQ(bytes[i], test::sample_byte("layers.0.weight", 101 * 4 + i, 1));
}

TEST(Checkpoint, WhatDoesNotFitIsRefusedWithBothValues) {
  const TempDir dir;
  const Checkpoint checkpoint = Checkpoint::open(save(dir.path(), 10, 1));
  float values[200];
  HostSlice target;
  target.name = "layers.1.weight";
  target.data = values;
  EXPECT_TRUE(contains(error_of([&] { checkpoint.read(target); }), "no tensor 'layers.1.weight'"));
  target.name = "layers.0.weight";
  target.shape = {5, 37};
  EXPECT_TRUE(contains(error_of([&] { checkpoint.read(target); }), "is F32 [37, 5]"));
  EXPECT_TRUE(contains(error_of([&] { checkpoint.read(target); }), "but F32 [5, 37] in this run"));
  EXPECT_TRUE(contains(error_of([&] { checkpoint.read_tensor_range("tiny", 1, 3, values); }),
                       "elements [1, 3) of tensor 'tiny' requested"));
  EXPECT_TRUE(contains(error_of([&] { Checkpoint::open(dir.path()); }), "has no manifest.json"));
}

TEST(Checkpoint, EqualRunsWriteEqualBytes) {
  const TempDir a, b;
  const fs::path one = save(a.path(), 10, 1), two = save(b.path(), 10, 1);
  for (const auto& item : fs::directory_iterator(one))
    EXPECT_EQ(read_bytes(item.path()), read_bytes(two / item.path().filename())) << item.path();
}

TEST(Checkpoint, TheLatestIsTheNewestThatVerifies) {
  log::init({.level = log::Severity::error});
  const TempDir dir;
  EXPECT_FALSE(find_latest_verified(dir / "none"));
  EXPECT_FALSE(find_latest_verified(dir.path()));
  for (const std::int64_t step : {9, 10, 200, 1000}) save(dir.path(), step, static_cast<int>(step));
  EXPECT_EQ(steps_in(dir.path()), (std::vector<std::int64_t>{9, 10, 200, 1000}));
  EXPECT_EQ(find_latest_verified(dir.path()), dir / "checkpoint-1000");
  fs::remove(dir / "checkpoint-1000/manifest.json");
  EXPECT_EQ(find_latest_verified(dir.path()), dir / "checkpoint-200");
  const fs::path shard = dir / "checkpoint-200/qft_state-00000-of-00001.safetensors";
  std::string bytes = read_bytes(shard);
  bytes.back() = static_cast<char>(bytes.back() ^ 1);
  write_bytes(shard, bytes);
  EXPECT_EQ(find_latest_verified(dir.path()), dir / "checkpoint-10");
  fs::rename(dir / "checkpoint-10", dir / "abandoned-checkpoint-10-0a1b2c3d");
  EXPECT_EQ(find_latest_verified(dir.path()), dir / "checkpoint-9");
  fs::remove_all(dir / "checkpoint-9");
  EXPECT_EQ(find_latest_verified(dir.path()), dir / "abandoned-checkpoint-10-0a1b2c3d");
}

TEST(Retention, KeepsTheNewestAndTheBest) {
  const TempDir dir;
  SaveOptions options;
  options.save_total_limit = 2;
  for (const std::int64_t step : {1, 2, 3}) save(dir.path(), step, 1, options);
  EXPECT_EQ(steps_in(dir.path()), (std::vector<std::int64_t>{2, 3}));
  options.best_checkpoint = dir / "checkpoint-2";
  for (const std::int64_t step : {4, 5}) save(dir.path(), step, 1, options);
  EXPECT_EQ(steps_in(dir.path()), (std::vector<std::int64_t>{2, 5}));
  options.save_total_limit = 1;
  save(dir.path(), 6, 1, options);
  EXPECT_EQ(steps_in(dir.path()), (std::vector<std::int64_t>{2, 6}));
  // A step below existing ones is still the newest.
  options.best_checkpoint.clear();
  save(dir.path(), 3, 1, options);
  EXPECT_EQ(steps_in(dir.path()), (std::vector<std::int64_t>{3}));
  options.save_total_limit.reset();
  save(dir.path(), 4, 1, options);
  EXPECT_EQ(steps_in(dir.path()).size(), 2u);
  EXPECT_EQ(io::posix_storage().list(dir.path()).size(), 2u);
}

TEST(Writer, AFailureNamesItsReasonAndLeavesNothing) {
  const TempDir dir;
  save(dir.path(), 1, 1);
  const auto comm = comm::make_self_communicator();
  {
    CheckpointWriter writer(*comm, io::posix_storage(), {.output_dir = dir.path(), .step = 2});
    writer.add_file("bad", [](io::Storage&, const fs::path&) { fail("the disk is full"); });
    writer.add_file("after", [](io::Storage&, const fs::path&) { ADD_FAILURE() << "went on after an error"; });
    EXPECT_TRUE(contains(error_of([&] { writer.commit({}); }), "the disk is full"));
  }
  EXPECT_EQ(io::posix_storage().list(dir.path()), std::vector<std::string>{"checkpoint-1"});
  {
    CheckpointWriter writer(*comm, io::posix_storage(), {.output_dir = dir.path(), .step = 2});
    std::vector<std::string> bytes;
    writer.write_slices(test::sample_slices<HostSlice>(0, 2, 1, bytes));
    EXPECT_TRUE(contains(error_of([&] { writer.commit({}); }), "elements [92, 185) of tensor 'layers.0.weight' are in no file"));
  }
  {
    const CheckpointWriter abandoned(*comm, io::posix_storage(), {.output_dir = dir.path(), .step = 2});
  }
  EXPECT_EQ(io::posix_storage().list(dir.path()), std::vector<std::string>{"checkpoint-1"});
}

TEST(Writer, RemovesWhatAKilledRunLeft) {
  const TempDir dir;
  write_bytes(dir / "tmp-checkpoint-3.0a1b2c3d/half", "x");
  write_bytes(dir / "tmp-pruned-checkpoint-2/half", "x");
  write_bytes(dir / "tmp-notes.txt", "someone's own");
  write_bytes(dir / "tmp-checkpoint-3/half", "another program's");
  save(dir.path(), 4, 1);
  EXPECT_EQ(io::posix_storage().list(dir.path()),
            (std::vector<std::string>{"checkpoint-4", "tmp-checkpoint-3", "tmp-notes.txt"}));
}

// Fails, crashes or shortens one operation after another while step 2 (or step 1 again) is saved over step 1.
void save_with_every_fault(std::int64_t step, std::int64_t limit) {
  log::init({.level = log::Severity::error});
  for (const Fault fault : {Fault::error, Fault::short_write, Fault::crash}) {
    bool failed = true;
    for (std::uint64_t at = 0; failed || at < 30; ++at) {
      ASSERT_LT(at, 400u);
      for (const bool power_cut : {false, true}) {
        const TempDir dir, scratch;
        FaultStorage storage(scratch.path());
        save(dir.path(), 1, 1, {}, storage);
        SaveOptions options;
        options.save_total_limit = limit;
        storage.arm(at, fault);
        failed = false;
        try {
          save(dir.path(), step, 2, options, storage);
        } catch (const Error&) {
          failed = true;
        }
        if (power_cut) storage.lose_unsynced();
        SCOPED_TRACE("operation " + std::to_string(at) + ", fault " + std::to_string(static_cast<int>(fault)) +
                     (power_cut ? ", power cut" : ""));
        const auto latest = find_latest_verified(dir.path());
        ASSERT_TRUE(latest) << "neither the old nor the new checkpoint is left";
        const int version = read_sample(Checkpoint::open(*latest));
        EXPECT_TRUE(version == 2 || (failed && version == 1)) << version;
        if (fault == Fault::crash) {  // the next run continues from here
          storage.arm(0, Fault::none);
          save(dir.path(), 3, 3, {}, storage);
          EXPECT_EQ(find_latest_verified(dir.path()), dir / "checkpoint-3");
        }
      }
    }
  }
}

TEST(FaultInjection, ANewStepLeavesOldOrNew) {
  save_with_every_fault(2, 0);
}
TEST(FaultInjection, PruningLeavesOldOrNew) {
  save_with_every_fault(2, 1);
}
TEST(FaultInjection, ReplacingAStepLeavesOldOrNew) {
  save_with_every_fault(1, 0);
}

}  // namespace qft::checkpoint
