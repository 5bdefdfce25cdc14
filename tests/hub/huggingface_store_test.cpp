#include <chrono>
#include <filesystem>
#include <fstream>
#include <string>
#include <sys/stat.h>

#include "hub/store.h"
#include <gtest/gtest.h>

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
  const auto store = huggingface_store(source, root);
  fs::create_directories(store->whole(file).parent_path());
  std::ofstream(store->whole(file)) << "{}";
  store->publish(listing, {file});
  const fs::path home = root / huggingface_folder(source);
  const ino_t ref = inode(home / "refs/main");
  const auto kept = fs::recursive_directory_iterator(home / ".qft-listings")->path();
  const ino_t list = inode(kept);
  for (const char* left : {"tmp-old", "tmp-new"}) fs::create_directories(home / left);
  fs::last_write_time(home / "tmp-old", fs::file_time_type::clock::now() - std::chrono::hours(25));
  huggingface_store(source, root)->publish(listing, {file});
  EXPECT_FALSE(fs::exists(home / "tmp-old"));
  EXPECT_TRUE(fs::exists(home / "tmp-new"));
  EXPECT_EQ(inode(home / "refs/main"), ref);
  EXPECT_EQ(inode(kept), list);
  EXPECT_EQ(std::distance(fs::directory_iterator(home / "refs"), fs::directory_iterator()), 1);
  fs::remove_all(root);
}

}  // namespace
}  // namespace qft::hub
