#include "qft/io/storage.h"

#include "qft/core/log.h"

#include <filesystem>
#include <functional>
#include <optional>
#include <string>

#include "io/fault_storage.h"
#include "io/temp_dir.h"
#include <gtest/gtest.h>

namespace qft::io {

namespace fs = std::filesystem;
using test::contains;
using test::error_of;
using test::Fault;
using test::FaultStorage;
using test::read_bytes;
using test::TempDir;
using test::write_bytes;

TEST(PosixStorage, AFullDiskNamesTheFileAndTheBytesAndKeepsTheOldVersion) {
  if (!fs::exists("/dev/full")) GTEST_SKIP() << "no /dev/full";
  const auto file = posix_storage().create("/dev/full");
  const std::string message = error_of([&] { file->append("0123456789", 10); });
  EXPECT_TRUE(contains(message, "/dev/full"));
  EXPECT_TRUE(contains(message, "0 of 10 bytes at offset 0"));
  EXPECT_TRUE(contains(message, "No space left"));
}

TEST(PosixStorage, RemoveTreeDoesNotFollowLinks) {
  const TempDir dir;
  write_bytes(dir / "outside/keep", "x");
  write_bytes(dir / "tree/sub/file", "x");
  fs::create_symlink(dir / "outside", dir / "tree/link");
  remove_tree(posix_storage(), dir / "tree");
  EXPECT_FALSE(fs::exists(dir / "tree"));
  EXPECT_TRUE(fs::exists(dir / "outside/keep"));
  remove_tree(posix_storage(), dir / "tree");
}

TEST(CopyFile, CopiesAnySize) {
  const TempDir dir;
  for (const std::size_t bytes : {std::size_t{0}, std::size_t{1}, std::size_t{9} << 20}) {
    const std::string content(bytes, 'c');
    write_bytes(dir / "from", content);
    copy_file(posix_storage(), dir / "from", dir / "to");
    EXPECT_EQ(read_bytes(dir / "to"), content);
  }
}

TEST(AtomicWriteFile, ReplacesContentAndLeavesNoTemporary) {
  const TempDir dir;
  atomic_write_file(posix_storage(), dir / "state.json", "old");
  atomic_write_file(posix_storage(), dir / "state.json", "new");
  EXPECT_EQ(read_bytes(dir / "state.json"), "new");
  EXPECT_EQ(posix_storage().list(dir.path()).size(), 1u);
}

// Runs `change` once for each of its storage operations, with that operation failing; `check` then inspects the remaining files.
// `prepare` sets up the old state; it gets a fresh directory each time.
void with_every_fault(const std::function<void(const fs::path&)>& prepare,
                      const std::function<void(Storage&, const fs::path&)>& change,
                      const std::function<void(const fs::path&, bool failed)>& check) {
  log::init({.level = log::Severity::error});  // every fault would warn
  for (const Fault fault : {Fault::error, Fault::short_write, Fault::crash}) {
    bool failed = true;
    for (std::uint64_t at = 0; failed; ++at) {
      ASSERT_LT(at, 200u);
      for (const bool power_cut : {false, true}) {
        const TempDir dir, scratch;
        prepare(dir.path());
        FaultStorage storage(scratch.path());
        storage.arm(at, fault);
        failed = false;
        try {
          change(storage, dir.path());
        } catch (const Error&) {
          failed = true;
        }
        if (power_cut) storage.lose_unsynced();
        SCOPED_TRACE("operation " + std::to_string(at) + ", fault " + std::to_string(int(fault)) +
                     (power_cut ? ", power cut" : ""));
        check(dir.path(), failed);
      }
    }
  }
}

TEST(AtomicWriteFile, LeavesOldOrNewAtEveryFault) {
  with_every_fault([](const fs::path& dir) { write_bytes(dir / "f", "old"); },
                   [](Storage& storage, const fs::path& dir) { atomic_write_file(storage, dir / "f", "new!"); },
                   [](const fs::path& dir, bool failed) {
                     const std::string now = read_bytes(dir / "f");
                     EXPECT_TRUE(now == "new!" || (failed && now == "old")) << "'" << now << "'";
                   });
}

void write_pair(Storage& storage, const fs::path& dir, const std::string& content) {
  for (const char* name : {"a", "b"}) {
    const auto file = storage.create(dir / name);
    file->append(content.data(), content.size());
    file->sync();
    file->close();
  }
}

std::optional<std::string> read_pair(const fs::path& dir) {
  if (!fs::exists(dir)) return std::nullopt;
  const std::string a = read_bytes(dir / "a"), b = read_bytes(dir / "b");
  return a == b ? a : "torn: '" + a + "' '" + b + "'";
}

void commit_new(Storage& storage, const fs::path& dir) {
  CommitDir commit(storage, dir / "target");
  write_pair(storage, commit.temp(), "new!");
  commit.commit();
}

TEST(CommitDir, AppearsWholeOrNotAtAllAtEveryFault) {
  with_every_fault([](const fs::path&) {}, commit_new,
                   [](const fs::path& dir, bool failed) {
                     const auto now = read_pair(dir / "target");
                     EXPECT_TRUE(now == "new!" || (failed && !now)) << now.value_or("none");
                   });
}

TEST(CommitDir, NeverReplacesWhatHasTheName) {
  const TempDir dir;
  write_bytes(dir / "target/a", "another's");
  {
    CommitDir commit(posix_storage(), dir / "target", "0a1b2c3d");
    write_pair(posix_storage(), commit.temp(), "new!");
    EXPECT_EQ(commit.temp(), dir / "tmp-target.0a1b2c3d");
    EXPECT_TRUE(contains(error_of([&] { commit.commit(); }), "target"));
  }
  EXPECT_EQ(read_bytes(dir / "target/a"), "another's");
  EXPECT_EQ(posix_storage().list(dir.path()), std::vector<std::string>{"target"});
}

TEST(CommitDir, RemovesWhatAnEarlierRunLeft) {
  const TempDir dir;
  write_bytes(dir / "tmp-target/stale", "x");
  {
    CommitDir commit(posix_storage(), dir / "target");
    write_pair(posix_storage(), commit.temp(), "new!");
    commit.commit();
  }
  EXPECT_EQ(posix_storage().list(dir.path()), std::vector<std::string>{"target"});
  EXPECT_EQ(posix_storage().list(dir / "target"), (std::vector<std::string>{"a", "b"}));
}

}  // namespace qft::io
