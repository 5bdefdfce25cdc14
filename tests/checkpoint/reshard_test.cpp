#include "qft/checkpoint/reshard.h"

#include "qft/checkpoint/verify.h"

#include <filesystem>
#include <string>

#include "checkpoint/sample.h"
#include "io/fault_storage.h"
#include "io/temp_dir.h"
#include <gtest/gtest.h>

namespace qft::checkpoint {

namespace fs = std::filesystem;
using test::contains;
using test::error_of;
using test::read_bytes;
using test::TempDir;
using test::write_bytes;

fs::path save(const fs::path& dir) {
  const auto comm = comm::make_self_communicator();
  SaveOptions options;
  options.output_dir = dir;
  options.step = 7;
  return test::save_sample(*comm, io::posix_storage(), options, 3);
}

std::size_t state_files(const fs::path& dir) {
  std::size_t count = 0;
  for (const auto& item : fs::directory_iterator(dir)) count += item.path().filename().string().starts_with(kStateStem) ? 1 : 0;
  return count;
}

TEST(Reshard, AnyNumberOfRanksHoldsTheSameState) {
  const TempDir dir;
  const fs::path original = save(dir / "run");
  fs::path from = original;
  for (const int ranks : {1, 2, 3, 8, 200, 1}) {
    const fs::path to = dir / ("to" + std::to_string(ranks) + (from == original ? "a" : "b")) / "checkpoint-7";
    fs::create_directories(to.parent_path());
    reshard(io::posix_storage(), from, to, ranks);
    const VerifyReport report = verify(to);
    EXPECT_TRUE(report.ok()) << report.errors.front();
    EXPECT_TRUE(report.warnings.empty());
    const Checkpoint checkpoint = Checkpoint::open(to);
    EXPECT_EQ(checkpoint.manifest().world_size, ranks);
    EXPECT_EQ(test::read_sample(checkpoint), 3);
    EXPECT_EQ(state_files(to), std::min<std::size_t>(static_cast<std::size_t>(ranks), ranks == 200 ? 186 : 200));
    for (const char* name : {"trainer_state.json", "adapter_config.json"})
      EXPECT_EQ(read_bytes(to / name), read_bytes(original / name));
    from = to;
  }
  EXPECT_EQ(read_bytes(from / "manifest.json"), read_bytes(dir / "to1a/checkpoint-7/manifest.json"));
}

TEST(Reshard, ACrashAnywhereLeavesAllOrNothing) {
  const TempDir dir, scratch;
  const fs::path from = save(dir / "run"), to = dir / "new";
  test::FaultStorage storage(scratch.path());
  int crashes = 0;
  for (std::uint64_t at = 0;; ++at) {
    storage.arm(at, test::Fault::crash);
    try {
      reshard(storage, from, to, 3);
      break;
    } catch (const Error&) {
      ++crashes;
    }
    storage.lose_unsynced();
    if (!fs::exists(to)) continue;
    EXPECT_TRUE(verify(to).ok()) << "after a crash at operation " << at;
    fs::remove_all(to);
  }
  EXPECT_GT(crashes, 15);
  EXPECT_TRUE(verify(to).ok());
}

TEST(Reshard, RefusesDamageAndTargetsInUse) {
  const TempDir dir;
  const fs::path from = save(dir / "run");
  const auto refusal = [&](const fs::path& to, int ranks) {
    return error_of([&] { reshard(io::posix_storage(), from, to, ranks); });
  };
  write_bytes(dir / "full/thesis.txt", "mine");
  EXPECT_TRUE(contains(refusal(dir / "full", 2), "not an empty directory"));
  EXPECT_EQ(read_bytes(dir / "full/thesis.txt"), "mine");
  EXPECT_TRUE(contains(refusal(dir / "new", 0), "give 1 to 99999"));
  EXPECT_TRUE(contains(error_of([&] { reshard(io::posix_storage(), dir.path(), dir / "new", 2); }), "manifest.json"));
  std::string state = read_bytes(from / "qft_state-00000-of-00001.safetensors");
  state.back() = static_cast<char>(state.back() ^ 1);
  write_bytes(from / "qft_state-00000-of-00001.safetensors", state);
  EXPECT_TRUE(contains(refusal(dir / "new", 2), "is damaged and is not resharded"));
  EXPECT_FALSE(fs::exists(dir / "new"));
}

}  // namespace qft::checkpoint
