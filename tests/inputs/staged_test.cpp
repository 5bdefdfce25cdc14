#include "qft/inputs/staged.h"

#include "qft/core/error.h"

#include <algorithm>
#include <fcntl.h>
#include <fstream>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "inputs/copies.h"
#include "inputs/streams.h"
#include <gtest/gtest.h>

namespace qft::inputs {
namespace {

namespace fs = std::filesystem;

/// Two folders: originals, and a node's copies.
class Staged : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = (fs::temp_directory_path() / "qft-staged-XXXXXX").string();
    root_ = mkdtemp(name.data());
  }
  void TearDown() override { fs::remove_all(root_); }

  StagedItem original(const std::string& name, std::size_t bytes) const {
    StagedItem item{name, root_ / "originals" / name, false, {}};
    for (const auto& [file, size] :
         {std::pair{"config.json", std::size_t{2}}, {"empty", std::size_t{0}}, {"sub/weights", bytes}}) {
      const fs::path path = item.source / file;
      fs::create_directories(path.parent_path());
      std::ofstream(path) << std::string(size, 'x');
      struct stat status{};
      stat(path.c_str(), &status);
      item.files.push_back({.path = file, .bytes = size, .changed = changed_at(status)});
    }
    return item;
  }

  /// Makes a copy like stage(), on one node.
  static fs::path copy(StageFolder& folder, StagedItem item) {
    const fs::path made = folder.begin(item);
    send(item, made);
    return folder.commit(item, made);
  }
  static void send(StagedItem& item, const fs::path& made) {
    StreamReader reader(item.source, item.files);
    StreamWriter writer(made, item.files);
    std::vector<std::byte> bytes(item.bytes());
    reader.read(bytes);
    for (std::size_t at = 0; at < bytes.size(); at += 1000)
      writer.write(std::span(bytes).subspan(at, std::min<std::size_t>(1000, bytes.size() - at)));
    item.files = reader.finish();
    EXPECT_EQ(reader.error(), "");
    EXPECT_EQ(writer.finish(item.files), "");
  }
  /// Returns the time of a copy's last use.
  static void age(const fs::path& copy) {
    const timespec long_ago[] = {{1000, 0}, {1000, 0}};
    ASSERT_EQ(utimensat(AT_FDCWD, (copy / ".qft-staged.json").c_str(), long_ago, 0), 0);
  }

  fs::path disk() const { return root_ / "disk"; }
  fs::path root_;
};

TEST_F(Staged, IsFoundAgainUntilTheOriginalOrTheCopyChanges) {
  StagedItem item = original("model", 5000);
  StageFolder folder(disk(), 0);
  EXPECT_FALSE(folder.find(item));
  const fs::path there = copy(folder, item);
  EXPECT_EQ(folder.find(item), there);
  EXPECT_EQ(fs::file_size(there / "sub/weights"), 5000U);
  EXPECT_TRUE(fs::exists(there / "empty"));
  StagedItem newer = item;
  newer.files.back().changed += 1;
  EXPECT_FALSE(folder.find(newer));
}

TEST_F(Staged, WhatCannotBeRemovedIsLeft) {
  EXPECT_NO_THROW(StageFolder::drop(root_ / "none"));
  std::ofstream(root_ / "file") << "x";
  EXPECT_NO_THROW(StageFolder::drop(root_ / "file" / "in-a-file"));
}

TEST_F(Staged, IsMadeAnewWhereItWasChanged) {
  const StagedItem item = original("model", 5000);
  fs::path there;
  {
    StageFolder folder(disk(), 0);
    there = copy(folder, item);
  }
  fs::permissions(there / "sub/weights", fs::perms::owner_all);
  std::ofstream(there / "sub/weights", std::ios::app) << "more";
  StageFolder folder(disk(), 0);
  EXPECT_FALSE(folder.find(item));
  EXPECT_FALSE(fs::exists(there));
}

TEST_F(Staged, MakesRoomByWhatWasUsedLongestAgo) {
  const StagedItem a = original("a", 4000), b = original("b", 4000), c = original("c", 4000);
  fs::path old, newer;
  {
    StageFolder folder(disk(), 10'000);
    old = copy(folder, a), newer = copy(folder, b);
  }
  age(old);
  StageFolder folder(disk(), 10'000);
  const fs::path there = copy(folder, c);
  EXPECT_FALSE(fs::exists(old));
  EXPECT_TRUE(fs::exists(newer));
  EXPECT_TRUE(fs::exists(there));
  EXPECT_THROW(static_cast<void>(folder.begin(original("large", 20'000))), Error);
}

TEST_F(Staged, DoesNotRemoveWhatIsInUse) {
  const StagedItem a = original("a", 4000);
  StageFolder holder(disk(), 0);
  const fs::path there = copy(holder, a);
  StageFolder other(disk(), 5000);
  EXPECT_THROW(static_cast<void>(other.begin(original("b", 4000))), Error);
  EXPECT_TRUE(prune(disk(), std::chrono::seconds(0)).empty());
  EXPECT_TRUE(fs::exists(there / "sub/weights"));
}

TEST_F(Staged, PrunesOnlyWhatItsManifestNames) {
  fs::path there, stranger = disk() / "mine", mixed;
  {
    StageFolder folder(disk(), 0);
    there = copy(folder, original("a", 10)), mixed = copy(folder, original("b", 10));
  }
  fs::create_directories(stranger);
  std::ofstream(stranger / "thesis.txt") << "words";
  std::ofstream(mixed / "notes.txt") << "words";
  EXPECT_TRUE(prune(disk(), std::chrono::hours(1)).empty());
  EXPECT_EQ(prune(disk(), std::chrono::seconds(0)).size(), 2U);
  EXPECT_FALSE(fs::exists(there));
  EXPECT_TRUE(fs::exists(stranger / "thesis.txt"));
  EXPECT_TRUE(fs::exists(mixed / "notes.txt"));
  EXPECT_FALSE(fs::exists(mixed / "config.json"));
}

TEST_F(Staged, OfAKilledProcessIsNeverTakenForACopy) {
  const StagedItem item = original("model", 5000);
  const pid_t child = fork();
  if (child == 0) {
    StageFolder folder(disk(), 0);
    static_cast<void>(folder.begin(item));
    _exit(0);
  }
  waitpid(child, nullptr, 0);
  StageFolder folder(disk(), 0);
  EXPECT_FALSE(folder.find(item));
  EXPECT_EQ(prune(disk(), std::chrono::hours(1)).size(), 1U);
  EXPECT_TRUE(fs::is_empty(disk()));
}

TEST_F(Staged, OfAKilledProcessGoesAtOnce) {
  const StagedItem item = original("model", 5000);
  {
    static_cast<void>(StageFolder(disk(), 0).begin(item));
  }
  StageFolder folder(disk(), 0);
  const fs::path other = folder.begin(original("b", 10)), third = folder.begin(original("c", 10));
  EXPECT_EQ(std::distance(fs::directory_iterator(disk()), fs::directory_iterator()), 2) << "unfinished copies stay";
  EXPECT_TRUE(fs::exists(other));
}

TEST_F(Staged, RemovesNothingWhereThatMakesNoRoom) {
  const StagedItem a = original("a", 4000), b = original("b", 4000), c = original("c", 7000);
  fs::path unused;
  {
    StageFolder folder(disk(), 10'000);
    unused = copy(folder, b);
  }
  StageFolder holder(disk(), 10'000);
  static_cast<void>(copy(holder, a));
  EXPECT_THROW(static_cast<void>(holder.begin(c)), Error);
  EXPECT_TRUE(fs::exists(unused / "sub/weights"));
}

TEST_F(Staged, TakesAnotherNameWhereItsOwnIsTaken) {
  const StagedItem item = original("a", 10);
  {
    StageFolder folder(disk(), 0);
    const fs::path first = copy(folder, item);
    std::ofstream(first / "notes.txt") << "words";
  }
  prune(disk(), std::chrono::seconds(0));
  StageFolder folder(disk(), 0);
  const fs::path there = copy(folder, item);
  EXPECT_EQ(folder.find(item), there);
  EXPECT_TRUE(fs::exists(disk() / item.folder() / "notes.txt"));
  EXPECT_EQ(std::distance(fs::directory_iterator(disk()), fs::directory_iterator()), 2);
}

TEST_F(Staged, IsNotTakenWhileAnotherProcessRemovesIt) {
  const StagedItem item = original("a", 10);
  fs::path there;
  {
    StageFolder folder(disk(), 0);
    there = copy(folder, item);
  }
  const int fd = open((there / ".qft-staged.json").c_str(), O_RDWR);
  ASSERT_EQ(flock(fd, LOCK_EX | LOCK_NB), 0);
  StageFolder folder(disk(), 0);
  EXPECT_FALSE(folder.find(item));
  close(fd);
  EXPECT_TRUE(folder.find(item));
}

TEST_F(Staged, IsMadeByOneProcessAtATime) {
  const StagedItem item = original("a", 10);
  StageFolder one(disk(), 0), two(disk(), 0);
  auto claim = one.claim(item);
  EXPECT_TRUE(claim);
  EXPECT_FALSE(two.claim(item));
  EXPECT_TRUE(two.claim(original("b", 10)));
  claim.reset();
  EXPECT_TRUE(two.claim(item));
  EXPECT_TRUE(fs::is_empty(disk()));
}

TEST_F(Staged, IsKnownByTheTimesThatItsDiskKeeps) {
  StagedItem item = original("old", 10);
  const timespec before_1970[] = {{-3, 500'000'000}, {-3, 500'000'000}};
  ASSERT_EQ(utimensat(AT_FDCWD, (item.source / "config.json").c_str(), before_1970, 0), 0);
  item.files.front().changed = -2'500'000'000;
  StageFolder folder(disk(), 0);
  const fs::path made = folder.begin(item);
  send(item, made);
  const timespec whole_seconds[] = {{-3, 0}, {-3, 0}};  // as a disk may round times
  ASSERT_EQ(utimensat(AT_FDCWD, (made / "config.json").c_str(), whole_seconds, 0), 0);
  const fs::path there = folder.commit(item, made);
  EXPECT_EQ(folder.find(item), there);
}

TEST_F(Staged, FollowsNoLinkOutOfACopy) {
  fs::path there;
  {
    StageFolder folder(disk(), 0);
    there = copy(folder, original("a", 10));
  }
  fs::create_directories(root_ / "mine");
  std::ofstream(root_ / "mine/weights") << "words";
  fs::remove_all(there / "sub");
  fs::create_symlink(root_ / "mine", there / "sub");
  prune(disk(), std::chrono::seconds(0));
  EXPECT_TRUE(fs::exists(root_ / "mine/weights"));
}

TEST_F(Staged, NoticesAFileThatIsReplacedByOneOfItsSize) {
  StagedItem item = original("model", 5000);
  StreamReader reader(item.source, item.files);
  std::vector<std::byte> bytes(item.bytes());
  reader.read(std::span(bytes).first(1000));
  const timespec later[] = {{2'000'000'000, 0}, {2'000'000'000, 0}};
  std::ofstream(item.source / "sub/weights", std::ios::in) << "another";
  ASSERT_EQ(utimensat(AT_FDCWD, (item.source / "sub/weights").c_str(), later, 0), 0);
  reader.read(std::span(bytes).subspan(1000));
  EXPECT_NE(reader.error().find("changed during staging"), std::string::npos) << reader.error();
}

TEST_F(Staged, NoticesAFileThatChangesMeanwhile) {
  StagedItem item = original("model", 5000);
  fs::resize_file(item.source / "sub/weights", 100);
  StreamReader reader(item.source, item.files);
  std::vector<std::byte> bytes(item.bytes());
  reader.read(bytes);
  EXPECT_NE(reader.error().find("the file ends there"), std::string::npos);
}

TEST_F(Staged, NoticesBytesThatChangeOnTheWay) {
  const StagedItem item = original("model", 5000);
  fs::create_directories(root_ / "made");
  StreamReader reader(item.source, item.files);
  StreamWriter writer(root_ / "made", item.files);
  std::vector<std::byte> bytes(item.bytes());
  reader.read(bytes);
  bytes.back() ^= std::byte{1};
  writer.write(bytes);
  EXPECT_NE(writer.finish(reader.finish()).find("sub/weights' arrived with the hash"), std::string::npos);
}

}  // namespace
}  // namespace qft::inputs
