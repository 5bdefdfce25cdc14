// Saves with all ranks, and loads with more or fewer.
#include "qft/checkpoint/restore.h"
#include "qft/checkpoint/verify.h"
#include "qft/comm/exchange.h"
#include "qft/comm/session.h"
#include "qft/core/log.h"

#include <filesystem>
#include <fstream>
#include <memory>
#include <string>

#include "checkpoint/sample.h"
#include "io/fault_storage.h"
#include "io/temp_dir.h"
#include "support/world.h"
#include <gtest/gtest.h>
#include <mpi.h>

namespace qft::checkpoint {
namespace {

namespace fs = std::filesystem;
using test::contains;
using test::error_of;
using test::sample_slices;
using test::save_sample;
using test::TempDir;

// One directory for all ranks, removed by rank 0 when all are done.
class SharedDir {
 public:
  SharedDir() {
    if (world().rank() == 0) owned_ = std::make_unique<TempDir>();
    path_ = comm::broadcast_string(world(), owned_ ? owned_->path().string() : "");
  }
  ~SharedDir() { world().barrier(); }
  const fs::path& path() const { return path_; }
  fs::path operator/(const std::string& name) const { return path_ / name; }

 private:
  std::unique_ptr<TempDir> owned_;
  fs::path path_;
};

SaveOptions at_step(const fs::path& dir, std::int64_t step) {
  SaveOptions options;
  options.output_dir = dir;
  options.step = step;
  return options;
}

// Loads this rank's share of the sample with `comm`'s ranks and compares it with the saved values.
void expect_sample(comm::Communicator& comm, const fs::path& dir, int version) {
  const SharedCheckpoint checkpoint(comm, dir);
  EXPECT_EQ(checkpoint.state().at("version"), version);
  std::vector<std::string> expected, got;
  sample_slices<HostSlice>(comm.rank(), comm.size(), version, expected);
  const auto targets = sample_slices<HostSlice>(comm.rank(), comm.size(), version + 1, got);
  checkpoint.read(targets);
  EXPECT_EQ(got, expected);
}

TEST(Distributed, AnyNumberOfRanksReadsWhatAnyNumberWrote) {
  const SharedDir dir;
  for (int writers = 1; writers <= world().size(); ++writers) {
    const auto saving = world().split(world().rank() < writers ? 0 : 1, world().rank(), "saving");
    const fs::path output = dir / std::to_string(writers);
    if (world().rank() < writers) save_sample(*saving, io::posix_storage(), at_step(output, 5), writers);
    world().barrier();
    EXPECT_TRUE(verify(output / "checkpoint-5").ok());
    for (int readers = 1; readers <= world().size(); ++readers) {
      const auto loading = world().split(world().rank() < readers ? 0 : 1, world().rank(), "loading");
      if (world().rank() < readers) expect_sample(*loading, output / "checkpoint-5", writers);
      world().barrier();
    }
  }
}

TEST(Distributed, AFailureOnOneRankIsThrownOnAllWithRankAndReason) {
  const SharedDir dir;
  save_sample(world(), io::posix_storage(), at_step(dir.path(), 1), 1);
  const int last = world().size() - 1;
  {
    CheckpointWriter writer(world(), io::posix_storage(), at_step(dir.path(), 2));
    if (world().rank() == last) writer.add_file("x", [](io::Storage&, const fs::path&) { fail("no space left on device"); });
    const std::string message = error_of([&] { writer.commit({}); });
    EXPECT_TRUE(contains(message, "no space left on device"));
    if (world().size() > 1) {
      EXPECT_TRUE(contains(message, "rank " + std::to_string(last)));
    }
  }
  world().barrier();
  EXPECT_EQ(io::posix_storage().list(dir.path()), std::vector<std::string>{"checkpoint-1"});
  EXPECT_EQ(find_latest_verified(world(), dir.path()), dir / "checkpoint-1");
}

TEST(Distributed, AnOutputDirectoryThatCannotBeMadeFailsOnAllRanks) {
  const SharedDir dir;
  if (world().rank() == 0) test::write_bytes(dir / "file", "");
  world().barrier();
  EXPECT_TRUE(contains(error_of([&] { CheckpointWriter(world(), io::posix_storage(), at_step(dir / "file", 2)); }), "file"));
}

TEST(Distributed, TwoOwnersOfAnElementAreRefused) {
  if (world().size() == 1) GTEST_SKIP() << "needs two ranks";
  const SharedDir dir;
  CheckpointWriter writer(world(), io::posix_storage(), at_step(dir.path(), 2));
  std::vector<std::string> bytes;
  writer.write_slices(sample_slices<HostSlice>(0, 1, 1, bytes));
  EXPECT_TRUE(contains(error_of([&] { writer.commit({}); }), "are in both 'qft_state-00000-of-"));
}

TEST(Distributed, TheLatestIsCheckedByAllRanksAndBrokenOnesSkipped) {
  log::init({.level = log::Severity::error});
  const SharedDir dir;
  for (const int step : {1, 2, 3}) save_sample(world(), io::posix_storage(), at_step(dir.path(), step), step);
  if (world().rank() == 0) {
    const fs::path shard =
        dir / fmt::format("checkpoint-3/qft_state-{:05}-of-{:05}.safetensors", world().size() - 1, world().size());
    std::string bytes = test::read_bytes(shard);
    bytes.back() = static_cast<char>(bytes.back() ^ 1);
    test::write_bytes(shard, bytes);
    fs::remove(dir / "checkpoint-2/manifest.json");
  }
  world().barrier();
  EXPECT_EQ(find_latest_verified(world(), dir.path()), dir / "checkpoint-1");
  EXPECT_FALSE(find_latest_verified(world(), dir / "none"));
}

TEST(Distributed, MissingTensorsAndOtherShapesFailOnAllRanks) {
  const SharedDir dir;
  const SharedCheckpoint checkpoint(world(), save_sample(world(), io::posix_storage(), at_step(dir.path(), 1), 1));
  std::vector<HostSlice> targets(1);
  targets[0].name = "unknown";
  if (world().rank() != 0) targets.clear();
  EXPECT_TRUE(contains(error_of([&] { checkpoint.read(targets); }), "no tensor 'unknown'"));
  EXPECT_TRUE(contains(error_of([&] { SharedCheckpoint(world(), dir / "checkpoint-9"); }), "checkpoint-9"));
}

// Different paths on different ranks simulate nodes with private disks.
TEST(PrivateDisks, TheCheckpointIsWholeOnRankZerosDisk) {
  const SharedDir dir;
  const fs::path mine = dir / ("node" + std::to_string(world().rank() % 2));
  fs::create_directories(mine);
  world().barrier();
  const fs::path path = save_sample(world(), io::posix_storage(), at_step(mine, 5), 3);
  world().barrier();
  EXPECT_TRUE(verify(dir / "node0/checkpoint-5").ok());
  EXPECT_EQ(io::posix_storage().list(dir / "node0"), std::vector<std::string>{"checkpoint-5"});
  if (world().size() > 1) {
    EXPECT_TRUE(fs::is_empty(dir / "node1"));
  }
  world().barrier();
  const auto latest = find_latest_verified(world(), mine);
  ASSERT_TRUE(latest);
  EXPECT_EQ(latest->filename(), path.filename());
  expect_sample(world(), *latest, 3);
  const SharedCheckpoint checkpoint(world(), *latest);
  std::vector<HostSlice> targets(1);
  float value = 0;
  targets[0].name = "unknown";
  targets[0].end = 1;
  targets[0].data = &value;
  if (world().rank() != world().size() - 1) targets.clear();
  EXPECT_TRUE(contains(error_of([&] { checkpoint.read(targets); }), "no tensor 'unknown'"));
}

// Each rank saves two columns and reads two rows, from rank 0 if it does not see the directory.
TEST(PrivateDisks, BoxesAreReadByOtherBoxes) {
  const SharedDir dir;
  const int ranks = world().size(), rank = world().rank();
  const fs::path mine = dir / ("node" + std::to_string(rank % 2));
  fs::create_directories(mine);
  world().barrier();
  const Shape shape{2 * ranks, 2 * ranks};
  const auto slice = [&](const Box& box, std::vector<float>& values) {
    return HostSlice{{"w", DType::f32, shape, box, 0, box.elements()}, values.data()};
  };
  std::vector<float> values, got(static_cast<std::size_t>(4 * ranks)), expected;
  for (int row = 0; row < 2 * ranks; ++row)
    for (int column : {2 * rank, 2 * rank + 1}) values.push_back(static_cast<float>(row * 2 * ranks + column));
  for (int i = 0; i < 4 * ranks; ++i) expected.push_back(static_cast<float>(rank * 4 * ranks + i));
  CheckpointWriter writer(world(), io::posix_storage(), at_step(mine, 5));
  writer.write_slices(std::vector<HostSlice>{slice({{0, 2 * rank}, {2 * ranks, 2}}, values)});
  const SharedCheckpoint checkpoint(world(), writer.commit({}));
  checkpoint.read(std::vector<HostSlice>{slice({{2 * rank, 0}, {2, 2 * ranks}}, got)});
  EXPECT_EQ(got, expected);
}

// The last rank simulates the other node. Rank 0 sees its own part of an interrupted save, but not other runs' parts.
TEST(PrivateDisks, WhatAKilledSaveLeftGoesFromAllOfThem) {
  const SharedDir dir;
  const bool other = world().rank() == world().size() - 1 && world().size() > 1;
  const fs::path mine = dir / (other ? "node1" : "node0");
  const std::string rank = std::to_string(world().size() - 1);
  if (world().rank() == 0) {
    fs::create_directories(dir / "node0/tmp-checkpoint-4.0123abcd");
    for (const std::string& name : {rank + ".0123abcd", rank + ".fedc9876", std::string("77.0123abcd")})
      fs::create_directories(dir / ("node1/tmp-checkpoint-4-" + name));
  }
  world().barrier();
  save_sample(world(), io::posix_storage(), at_step(mine, 5), 3);
  world().barrier();
  EXPECT_EQ(io::posix_storage().list(dir / "node0"), std::vector<std::string>{"checkpoint-5"});
  if (world().size() > 1) {
    EXPECT_FALSE(fs::exists(dir / ("node1/tmp-checkpoint-4-" + rank + ".0123abcd")));
    EXPECT_TRUE(fs::exists(dir / ("node1/tmp-checkpoint-4-" + rank + ".fedc9876"))) << "another run's";
    EXPECT_FALSE(fs::exists(dir / "node1/tmp-checkpoint-4-77.0123abcd")) << "a rank's of a larger job";
  }
  world().barrier();
}

// For example NFS holds a file of it open, or it belongs to another user.
TEST(PrivateDisks, WhatCannotBeRemovedEndsNoRun) {
  const SharedDir dir;
  const fs::path stuck = dir / "tmp-checkpoint-4.0123abcd/in_use";
  if (world().rank() == 0) fs::create_directories(stuck.parent_path()), std::ofstream(stuck) << "x";
  world().barrier();
  struct Stuck : test::FaultStorage {
    using FaultStorage::FaultStorage;
    void remove(const fs::path& path) override {
      require(path.filename() != "in_use", "cannot remove '{}'", path.string());
      FaultStorage::remove(path);
    }
  };
  const TempDir scratch;
  Stuck storage(scratch.path());
  save_sample(world(), storage, at_step(dir.path(), 5), 3);
  world().barrier();
  EXPECT_TRUE(fs::exists(stuck));
  EXPECT_TRUE(fs::exists(dir / "checkpoint-5"));
  world().barrier();
}

}  // namespace
}  // namespace qft::checkpoint
