#include "qft/core/error.h"

#include <filesystem>
#include <fstream>
#include <memory>
#include <string>

#include "../../src/hub/part_file.h"
#include "hub/store.h"
#include <gtest/gtest.h>

namespace qft::hub {
namespace {

namespace fs = std::filesystem;

class FolderStore : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = (fs::temp_directory_path() / "qft-store-XXXXXX").string();
    root_ = mkdtemp(name.data());
  }
  void TearDown() override { fs::remove_all(root_); }

  static void bring(const Store& store, const RemoteFile& file, bool whole = true) {
    const fs::path path = whole ? store.whole(file) : store.part(file);
    fs::create_directories(path.parent_path());
    std::ofstream(path) << std::string(file.bytes, 'x');
  }

  fs::path root_;
  Source source_{Hub::modelscope, Kind::model, "Acme/tiny", ""};
  RemoteFile config_{"config.json", 2, {}, {}}, first_{"model-1.safetensors", 5, {}, {}},
      second_{"model-2.safetensors", 6, {}, {}};
  Listing listing_{"", {config_, first_, second_}};
};

TEST_F(FolderStore, LeavesWhatAnotherProcessIsBringing) {
  for (const bool own : {false, true}) {
    const auto make = [&] { return own ? folder_store(source_, root_ / "to") : modelscope_store(source_, root_ / "cache"); };
    const auto slow = make(), quick = make();
    bring(*slow, first_);
    bring(*slow, second_, false);
    bring(*quick, config_);
    quick->publish(listing_, {config_});
    EXPECT_TRUE(slow->has(first_)) << own;
    EXPECT_TRUE(fs::exists(slow->part(second_))) << own;
    fs::rename(slow->part(second_), slow->whole(second_));
    slow->publish(listing_, listing_.files);
    for (const RemoteFile& file : listing_.files) EXPECT_EQ(fs::file_size(slow->folder(listing_) / file.path), file.bytes);
    EXPECT_FALSE(fs::exists(slow->whole(first_).parent_path())) << own;
  }
}

TEST_F(FolderStore, PublishesNothingThatIsNotThere) {
  const auto store = modelscope_store(source_, root_);
  bring(*store, config_);
  bring(*store, second_);
  EXPECT_THROW(store->publish(listing_, listing_.files), Error);
  EXPECT_FALSE(fs::exists(store->folder(listing_)));
}

/// The bytes that bring() writes are checked by size alone.
TEST_F(FolderStore, ReplacesOnlyWhatIsAsItCame) {
  const auto fetch = [&](const std::vector<RemoteFile>& files) {
    const auto store = folder_store(source_, root_);
    store->admit(files);
    for (const RemoteFile& file : files)
      if (!store->has(file)) bring(*store, file);
    store->publish(listing_, files);
  };
  fetch({config_, first_});
  RemoteFile newer = first_;
  newer.bytes = 7;
  fetch({config_, newer});
  EXPECT_EQ(fs::file_size(root_ / first_.path), 7U);
  std::ofstream(root_ / first_.path) << "my own words";
  EXPECT_THROW(fetch({config_, first_}), Error);
  EXPECT_EQ(fs::file_size(root_ / first_.path), 12U);
}

TEST_F(FolderStore, KnowsItsFilesAfterAKill) {
  fs::create_directories(root_ / second_.path / "mine");  // makes publish() stop in the middle
  {
    const auto store = folder_store(source_, root_);
    for (const RemoteFile& file : {first_, second_}) bring(*store, file);
    EXPECT_THROW(store->publish(listing_, {first_, second_}), Error);
  }
  ASSERT_TRUE(fs::exists(root_ / first_.path));
  RemoteFile newer = first_;
  newer.bytes = 7;
  EXPECT_NO_THROW(folder_store(source_, root_)->admit({newer}));
}

TEST_F(FolderStore, KeepsWhatCameAfterAKill) {
  const auto store = modelscope_store(source_, root_ / "cache");
  bring(*store, first_);
  const fs::path snapshots = store->folder(listing_).parent_path();
  std::ofstream(snapshots) << "in the way";
  EXPECT_ANY_THROW(store->publish(listing_, {first_}));
  EXPECT_TRUE(store->has(first_));
  fs::remove(snapshots);
  store->publish(listing_, {first_});
  EXPECT_EQ(fs::file_size(store->folder(listing_) / first_.path), first_.bytes);
}

TEST_F(FolderStore, LocksOfARevisionWithASlashAreThoseOfTheHubsClient) {
  Source source = source_;
  source.revision = "feature/x";
  EXPECT_EQ(modelscope_store(source, root_)->lock(first_).parent_path(), root_ / ".lock");
}

TEST_F(FolderStore, LocksByTheFileThatThePathNames) {
  const fs::path path = root_ / "a.lock";
  const auto keep_going = [] { return true; };
  auto first = std::make_unique<FileLock>(path, [] {}, keep_going);
  FileLock::remove_free(path);
  EXPECT_TRUE(fs::exists(path));
  // A waiter locks the new file if the old one is removed meanwhile.
  FileLock second(path, [&] { fs::remove(path), first.reset(); }, keep_going);
  EXPECT_TRUE(second.held());
  EXPECT_TRUE(fs::exists(path));
}

}  // namespace
}  // namespace qft::hub
