#include <cerrno>
#include <chrono>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <string>
#include <sys/stat.h>
#include <unistd.h>

#include "hub/store.h"
#include <gtest/gtest.h>

namespace {
bool no_links = false;
}  // namespace

/// Simulates a file system without links.
extern "C" int symlink(const char* target, const char* name) noexcept {
  if (!no_links) return symlinkat(target, AT_FDCWD, name);
  errno = EPERM;
  return -1;
}

namespace qft::hub {
namespace {

namespace fs = std::filesystem;

ino_t inode(const fs::path& path) {
  struct stat status{};
  EXPECT_EQ(stat(path.c_str(), &status), 0) << path;
  return status.st_ino;
}

TEST(HuggingFaceStore, WritesNothingWhereAllIsThere) {
  std::string name = (fs::temp_directory_path() / "qft-store-XXXXXX").string();
  const fs::path root = mkdtemp(name.data());
  const RemoteFile file{"config.json", 2, RemoteFile::Check::git_blob, std::string(40, 'b')};
  const Listing listing{std::string(40, 'a'), {file}};
  const Source source{Hub::huggingface, Kind::model, "Acme/tiny", ""};
  const auto store = huggingface_store(source, root, listing.commit);
  fs::create_directories(store->whole(file).parent_path());
  std::ofstream(store->whole(file)) << "{}";
  store->publish(listing, {file});
  const fs::path home = root / huggingface_folder(source);
  const ino_t ref = inode(home / "refs/main");
  const auto kept = fs::recursive_directory_iterator(home / ".qft-listings")->path();
  const ino_t list = inode(kept);
  for (const char* left : {"tmp-old", "tmp-new"}) fs::create_directories(home / left);
  fs::last_write_time(home / "tmp-old", fs::file_time_type::clock::now() - std::chrono::hours(25));
  huggingface_store(source, root, listing.commit)->publish(listing, {file});
  EXPECT_FALSE(fs::exists(home / "tmp-old"));
  EXPECT_TRUE(fs::exists(home / "tmp-new"));
  EXPECT_EQ(inode(home / "refs/main"), ref);
  EXPECT_EQ(inode(kept), list);
  EXPECT_EQ(std::distance(fs::directory_iterator(home / "refs"), fs::directory_iterator()), 1);
  fs::remove_all(root);
}

TEST(HuggingFaceStore, HasFilesOfTheSameBytesWithoutLinks) {
  std::string name = (fs::temp_directory_path() / "qft-store-XXXXXX").string();
  const fs::path root = mkdtemp(name.data());
  const std::string digest = "9e26dfeeb6e641a33dae4961196235bdb965b21b";  // git's hash of "{}"
  const RemoteFile config{"config.json", 2, RemoteFile::Check::git_blob, digest};
  const RemoteFile other{"tokenizer_config.json", 2, RemoteFile::Check::git_blob, digest};
  const Listing listing{std::string(40, 'a'), {config, other}};
  const Source source{Hub::huggingface, Kind::model, "Acme/tiny", ""};
  no_links = true;
  const auto store = huggingface_store(source, root, listing.commit);
  fs::create_directories(store->whole(config).parent_path());
  std::ofstream(store->whole(config)) << "{}";
  store->publish(listing, listing.files);
  no_links = false;
  const auto again = huggingface_store(source, root, listing.commit);
  for (const RemoteFile& file : listing.files) {
    EXPECT_TRUE(fs::is_regular_file(fs::symlink_status(again->folder(listing) / file.path))) << file.path;
    EXPECT_TRUE(again->has(file)) << file.path;
    EXPECT_EQ(again->readable(file), again->folder(listing) / file.path);
  }
  EXPECT_FALSE(fs::exists(again->whole(config))) << "each byte is on disk once";
  fs::remove_all(root);
}

}  // namespace
}  // namespace qft::hub
