#include "qft/checkpoint/gc.h"

#include <filesystem>
#include <map>
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

fs::path save(const fs::path& dir, std::int64_t step) {
  const auto comm = comm::make_self_communicator();
  SaveOptions options;
  options.output_dir = dir;
  options.step = step;
  return test::save_sample(*comm, io::posix_storage(), options, 1);
}

std::map<std::string, GcEntry> plan(const fs::path& dir, std::optional<std::int64_t> keep,
                                    std::chrono::seconds least_age = std::chrono::seconds(0)) {
  std::map<std::string, GcEntry> result;
  for (GcEntry& entry : plan_gc(dir, {keep, least_age})) result[entry.path.filename().string()] = entry;
  return result;
}

TEST(Gc, KeepsTheNewestThatVerifyAndTheBest) {
  const TempDir dir;
  for (const std::int64_t step : {5, 10, 20, 30, 40}) save(dir.path(), step);
  write_bytes(dir / "checkpoint-40/trainer_state.json", "{}");  // damaged: neither counted nor removed
  write_bytes(dir / "trainer_state.json", R"({"best_model_checkpoint": "/elsewhere/run/checkpoint-10"})");
  const auto entries = plan(dir.path(), 2);
  ASSERT_EQ(entries.size(), 5u);
  for (const char* name : {"checkpoint-10", "checkpoint-20", "checkpoint-30", "checkpoint-40"})
    EXPECT_FALSE(entries.at(name).remove) << name;
  EXPECT_TRUE(contains(entries.at("checkpoint-40").reason, "damaged"));
  EXPECT_TRUE(contains(entries.at("checkpoint-10").reason, "best"));
  EXPECT_TRUE(entries.at("checkpoint-5").remove);
  EXPECT_TRUE(fs::exists(dir / "checkpoint-5"));
  EXPECT_GT(run_gc(io::posix_storage(), plan_gc(dir.path(), {2, {}})), 0u);
  EXPECT_FALSE(fs::exists(dir / "checkpoint-5"));
  for (const auto& [name, entry] : plan(dir.path(), 2)) EXPECT_FALSE(entry.remove) << name;
}

TEST(Gc, DamageNeverCostsTheLastGoodOne) {
  const TempDir dir;
  for (const std::int64_t step : {10, 20, 30}) save(dir.path(), step);
  for (const char* name : {"checkpoint-20", "checkpoint-30"}) fs::remove(dir / name / "trainer_state.json");
  for (const auto& [name, entry] : plan(dir.path(), 1)) EXPECT_FALSE(entry.remove) << name;
}

TEST(Gc, RemovesWhatIsUnfinishedAndNothingThatItDoesNotKnow) {
  const TempDir dir;
  save(dir.path(), 10);
  for (const char* name : {"tmp-checkpoint-20.0a1b2c3d/a", "tmp-checkpoint-20-3.0a1b2c3d/a", "tmp-pruned-checkpoint-5/a",
                           "tmp-pruned-abandoned-checkpoint-5-0a1b2c3d/a"})
    write_bytes(dir / name, "x");
  for (const char* name : {"tmp-checkpoint-notes.0a1b2c3d/a", "tmp-checkpoint-1-two.0a1b2c3d/a", "tmp-checkpoint-9/a",
                           "tmp-mine/a", "tmp-pruned-mine/a", "checkpoint-final/a", "checkpoint-007/a", "notes.txt", "logs/a"})
    write_bytes(dir / name, "mine");
  write_bytes(dir / "checkpoint-3/model.safetensors", "belongs to another program");
  fs::create_directory_symlink("logs", dir / "checkpoint-4");
  fs::create_directory_symlink("logs", dir / "tmp-checkpoint-8.0a1b2c3d");
  const auto entries = plan(dir.path(), 1);
  int removed = 0;
  for (const auto& [name, entry] : entries) removed += entry.remove ? 1 : 0;
  EXPECT_EQ(removed, 4);
  for (const char* name : {"tmp-checkpoint-20.0a1b2c3d", "tmp-checkpoint-20-3.0a1b2c3d", "tmp-pruned-checkpoint-5",
                           "tmp-pruned-abandoned-checkpoint-5-0a1b2c3d"})
    EXPECT_TRUE(entries.at(name).remove) << name;
  EXPECT_TRUE(contains(entries.at("checkpoint-3").reason, "belongs to another program"));
  EXPECT_TRUE(contains(entries.at("checkpoint-4").reason, "a link"));
  run_gc(io::posix_storage(), plan_gc(dir.path(), {1, {}}));
  for (const char* name : {"tmp-checkpoint-notes.0a1b2c3d/a", "tmp-checkpoint-1-two.0a1b2c3d/a", "tmp-checkpoint-9/a",
                           "tmp-mine/a", "tmp-pruned-mine/a", "checkpoint-final/a", "checkpoint-007/a", "notes.txt", "logs/a",
                           "checkpoint-3/model.safetensors", "checkpoint-10/manifest.json"})
    EXPECT_TRUE(fs::exists(dir / name)) << name;
  EXPECT_TRUE(fs::is_symlink(dir / "tmp-checkpoint-8.0a1b2c3d"));
}

TEST(Gc, LeavesASaveThatMayBeGoingOn) {
  const TempDir dir;
  write_bytes(dir / "tmp-checkpoint-20.0a1b2c3d/a", "x");
  const auto entry = plan(dir.path(), {}, std::chrono::minutes(15)).at("tmp-checkpoint-20.0a1b2c3d");
  EXPECT_FALSE(entry.remove);
  EXPECT_TRUE(contains(entry.reason, "a run may be writing it"));
  // The newest file's time counts.
  const auto old = fs::file_time_type::clock::now() - std::chrono::hours(1);
  fs::last_write_time(dir / "tmp-checkpoint-20.0a1b2c3d", old);
  EXPECT_FALSE(plan(dir.path(), {}, std::chrono::minutes(15)).at("tmp-checkpoint-20.0a1b2c3d").remove);
  fs::last_write_time(dir / "tmp-checkpoint-20.0a1b2c3d/a", old);
  EXPECT_TRUE(plan(dir.path(), {}, std::chrono::minutes(15)).at("tmp-checkpoint-20.0a1b2c3d").remove);
}

TEST(Gc, RefusesWhatMakesNoSense) {
  const TempDir dir;
  EXPECT_TRUE(contains(error_of([&] { plan_gc(dir / "none", {}); }), "does not exist"));
  EXPECT_TRUE(contains(error_of([&] { plan_gc(dir.path(), {0, {}}); }), "give 1 or more"));
}

}  // namespace qft::checkpoint
