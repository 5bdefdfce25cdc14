#include "qft/io/dir_lock.h"

#include "qft/core/log.h"
#include "qft/io/storage.h"

#include <atomic>
#include <filesystem>
#include <set>
#include <string>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include "io/temp_dir.h"
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace qft::io {

namespace fs = std::filesystem;
using test::contains;
using test::error_of;
using test::read_bytes;
using test::TempDir;
using test::write_bytes;

/// Machines with processes, and a clock that advances when a process sleeps.
struct World {
  double time = 0;
  std::set<std::int64_t> running{1, 2, 3};
  std::function<void(double)> on_sleep = [](double) {};

  LockContext process(const std::string& machine, std::int64_t pid, const std::string& job = {}, std::int64_t restarts = 0) {
    LockContext c = this_process("qft train", job, restarts);
    c.self.host = "host-" + machine;
    c.self.machine = machine;
    c.self.pid = pid;
    c.now = [this] { return time; };
    c.sleep = [this](double seconds) { time += seconds, on_sleep(time); };
    c.alive = [this](std::int64_t p, std::int64_t) { return running.count(p) > 0; };
    c.beats = false;
    return c;
  }
};

/// Returns the lock file that a process leaves when it is killed while it holds the lock.
std::string killed(const TempDir& dir, const LockContext& context) {
  std::string text;
  {
    DirLock lock(dir.path(), context);
    text = read_bytes(dir / kLockFile);
  }
  write_bytes(dir / kLockFile, text);
  return text;
}

class DirLockTest : public testing::Test {
 protected:
  void SetUp() override { log::init({.level = log::Severity::error}); }
  TempDir dir_;
  World world_;
};

TEST_F(DirLockTest, IsHeldByOneAndGivenBack) {
  {
    DirLock lock(dir_.path(), world_.process("a", 1, "77"));
    lock.set_run("0123456789");
    const std::string message = error_of([&] { DirLock(dir_.path(), world_.process("a", 2)); });
    for (const char* part : {"qft train on host-a (pid 1, job 77, since 20", "run 01234567", "another output_dir"})
      EXPECT_TRUE(contains(message, part));
    EXPECT_LE(world_.time, kGraceSeconds + 1);
    lock.require_held();
  }
  EXPECT_TRUE(fs::is_empty(dir_.path()));
  const DirLock next(dir_.path(), world_.process("a", 2));
}

TEST_F(DirLockTest, ADeadProcessOfThisMachineIsFollowedAtOnce) {
  killed(dir_, world_.process("a", 1));
  world_.running.erase(1);
  const DirLock lock(dir_.path(), world_.process("a", 2));
  EXPECT_EQ(world_.time, 0);
  EXPECT_EQ(posix_storage().list(dir_.path()), std::vector<std::string>{kLockFile});
}

TEST_F(DirLockTest, OneThatIsJustBeingKilledGetsAMoment) {
  killed(dir_, world_.process("a", 1));
  world_.on_sleep = [&](double now) {
    if (now > kGraceSeconds / 2) world_.running.erase(1);
  };
  const DirLock lock(dir_.path(), world_.process("a", 2));
}

TEST_F(DirLockTest, AnotherMachinesIsWatchedByThisMachinesClock) {
  killed(dir_, world_.process("a", 1));
  const DirLock lock(dir_.path(), world_.process("b", 1));  // the same pid runs here, which proves nothing
  EXPECT_GE(world_.time, kDeadSeconds);
  EXPECT_LE(world_.time, kDeadSeconds + 2);
}

TEST_F(DirLockTest, OneThatMovesIsAliveWhateverItsMachine) {
  DirLock far(dir_.path(), world_.process("a", 9));
  world_.on_sleep = [&](double now) {
    if (now > kDeadSeconds - 5) far.beat();
  };
  EXPECT_TRUE(contains(error_of([&] { DirLock(dir_.path(), world_.process("b", 1)); }), "is in use by qft train on host-a"));
  EXPECT_LT(world_.time, kDeadSeconds);
}

TEST_F(DirLockTest, TheSameJobPutBackIntoTheQueueGoesOnAtOnce) {
  killed(dir_, world_.process("a", 1, "77", 0));
  const DirLock lock(dir_.path(), world_.process("b", 2, "77", 1));
  EXPECT_EQ(world_.time, 0);
}

TEST_F(DirLockTest, TheSameJobWithoutARestartMayBeAnotherStepOfIt) {
  killed(dir_, world_.process("a", 1, "77", 1));
  const DirLock lock(dir_.path(), world_.process("b", 2, "77", 1));
  EXPECT_GE(world_.time, kDeadSeconds);
}

TEST_F(DirLockTest, WhereTheBatchSystemDidNotAnswerTimeTells) {
  killed(dir_, world_.process("a", 1, "77", -1));
  const DirLock lock(dir_.path(), world_.process("b", 2, "77", 1));
  EXPECT_GE(world_.time, kDeadSeconds);
}

TEST_F(DirLockTest, ALockThatSaysNothingIsWatchedToo) {
  write_bytes(dir_ / kLockFile, "");
  const DirLock lock(dir_.path(), world_.process("b", 1));
  EXPECT_GE(world_.time, kDeadSeconds);
}

TEST_F(DirLockTest, AHolderThatWasTakenForDeadWritesNoMore) {
  auto context = world_.process("a", 9);
  DirLock stopped(dir_.path(), context);
  DirLock next(dir_.path(), world_.process("b", 1));
  const std::string now = read_bytes(dir_ / kLockFile);
  stopped.beat();
  EXPECT_EQ(read_bytes(dir_ / kLockFile), now);
  EXPECT_TRUE(contains(error_of([&] { stopped.require_held(); }), "was taken over by qft train on host-b"));
  next.require_held();
}

TEST_F(DirLockTest, ALostHolderLeavesTheLockToItsFollower) {
  std::optional<DirLock> stopped(std::in_place, dir_.path(), world_.process("a", 9));
  DirLock next(dir_.path(), world_.process("b", 1));
  stopped.reset();
  next.require_held();
}

TEST_F(DirLockTest, AFileThatSomeoneRemovedIsMadeAgain) {
  DirLock lock(dir_.path(), world_.process("a", 1));
  fs::remove(dir_ / kLockFile);
  lock.require_held();
  EXPECT_TRUE(contains(error_of([&] { DirLock(dir_.path(), world_.process("a", 2)); }), "pid 1"));
}

TEST_F(DirLockTest, AFollowerThatDiedHalfwayIsFollowed) {
  const std::string first = killed(dir_, world_.process("a", 1));
  const auto token = [](const std::string& text) { return nlohmann::json::parse(text).at("token").get<std::string>(); };
  TempDir other;
  const std::string second = killed(other, world_.process("a", 2));
  write_bytes(dir_ / (std::string(kLockPrefix) + "after-" + token(first)), second);
  write_bytes(dir_ / (std::string(kLockPrefix) + token(second)), second);
  world_.running = {3};
  const DirLock lock(dir_.path(), world_.process("a", 3));
  EXPECT_EQ(posix_storage().list(dir_.path()), std::vector<std::string>{kLockFile});
}

TEST_F(DirLockTest, OfManyWhoFollowOneWins) {
  for (int round = 0; round < 20; ++round) {
    const TempDir dir;
    World first;
    killed(dir, first.process("a", 1));
    std::atomic<int> winners = 0, refused = 0;
    std::vector<std::thread> threads;
    std::vector<std::unique_ptr<DirLock>> locks(8);
    std::vector<World> worlds(8);
    for (int i = 0; i < 8; ++i)
      threads.emplace_back([&, i] {
        World& world = worlds[static_cast<std::size_t>(i)];
        for (int pid = 100; pid < 108; ++pid) world.running.insert(pid);
        world.running.erase(1);
        try {
          locks[static_cast<std::size_t>(i)] = std::make_unique<DirLock>(dir.path(), world.process("a", 100 + i));
          ++winners;
        } catch (const Error&) {
          ++refused;
        }
      });
    for (std::thread& t : threads) t.join();
    EXPECT_EQ(winners, 1);
    EXPECT_EQ(refused, 7);
    for (const auto& lock : locks)
      if (lock) lock->require_held();
  }
}

TEST_F(DirLockTest, ARealProcessThatIsKilledIsSeenToBeGone) {
  const pid_t child = ::fork();
  if (child == 0) {
    const DirLock lock(dir_.path(), this_process("qft train"));
    ::raise(SIGKILL);
  }
  int status = 0;
  while (!fs::exists(dir_ / kLockFile)) std::this_thread::yield();
  // The child is a zombie until waitpid(): it counts as gone all the same.
  const DirLock lock(dir_.path(), this_process("qft train"));
  ::waitpid(child, &status, 0);
  EXPECT_TRUE(WIFSIGNALED(status));
}

}  // namespace qft::io
