#include "qft/core/member.h"

#include <filesystem>
#include <string>
#include <sys/stat.h>

#include "io/temp_dir.h"
#include <gtest/gtest.h>

namespace qft {

namespace fs = std::filesystem;
using test::contains;
using test::error_of;
using test::TempDir;
using test::write_bytes;

TEST(MemberOf, TakesPlainNamesOnly) {
  const TempDir dir;
  const std::string with_nul("a\0b", 3);
  for (const std::string& name : {std::string(), std::string("."), std::string(".."), std::string("../a"),
                                  std::string("/etc/passwd"), std::string("a/b"), std::string("a\\b"), with_nul})
    EXPECT_TRUE(contains(error_of([&] { member_of(dir.path(), name); }), "plain names")) << name;
  EXPECT_EQ(member_of(dir.path(), "..a"), dir / "..a");
  EXPECT_EQ(member_of(dir.path(), "missing.json"), dir / "missing.json");
}

TEST(MemberOf, TakesFilesOnly) {
  const TempDir dir;
  fs::create_directory(dir / "folder");
  ASSERT_EQ(::mkfifo((dir / "pipe").c_str(), 0600), 0);
  EXPECT_TRUE(contains(error_of([&] { member_of(dir.path(), "folder"); }), "a directory, not a file"));
  EXPECT_TRUE(contains(error_of([&] { member_of(dir.path(), "pipe"); }), "a special file, not a file"));
}

TEST(MemberOf, FollowsLinksInsideTheDirectoryOnly) {
  const TempDir dir;
  write_bytes(dir / "model/real", "x");
  write_bytes(dir / "secret", "y");
  fs::create_symlink("real", dir / "model/inside");
  fs::create_symlink("../secret", dir / "model/outside");
  fs::create_symlink("outside", dir / "model/twice");
  fs::create_symlink("../modelled", dir / "model/dangling");
  fs::create_symlink("loop", dir / "model/loop");
  fs::create_directory_symlink("model", dir / "link");
  EXPECT_EQ(member_of(dir / "model", "inside"), dir / "model/inside");
  EXPECT_EQ(member_of(dir / "link", "inside"), dir / "link/inside");
  EXPECT_EQ(member_of(dir / "model", "dangling"), dir / "model/dangling");
  for (const char* name : {"outside", "twice"}) {
    const std::string error = error_of([&] { member_of(dir / "model", name); });
    EXPECT_TRUE(contains(error, "outside its directory")) << name;
    EXPECT_TRUE(contains(error, "ln without -s")) << name;
  }
  EXPECT_TRUE(contains(error_of([&] { member_of(dir / "model", "loop"); }), "cannot follow the link"));
  follow_links(true);
  for (const char* name : {"outside", "twice"}) EXPECT_EQ(member_of(dir / "model", name), dir / "model" / name);
  follow_links(false);
  EXPECT_TRUE(contains(error_of([&] { member_of(dir / "model", "outside"); }), "follow_links: true"));
}

TEST(MemberOf, FollowsTheLinksOfTheHuggingFaceCache) {
  const TempDir dir;
  const fs::path repo = dir / "models--a--b", snapshot = repo / "snapshots/abc";
  write_bytes(repo / "blobs/0123", "x");
  write_bytes(dir / "blobs/4567", "x");  // shared by several repositories of a cache
  write_bytes(dir / "other/blobs/89ab", "x");
  fs::create_directories(snapshot / "adapter");
  fs::create_symlink("../../blobs/0123", snapshot / "model.safetensors");
  fs::create_symlink("../../../blobs/0123", snapshot / "adapter/adapter_model.safetensors");
  fs::create_symlink("../../../blobs/4567", snapshot / "shared.safetensors");
  fs::create_symlink("../../../other/blobs/89ab", snapshot / "other.safetensors");
  EXPECT_EQ(member_of(snapshot, "model.safetensors"), snapshot / "model.safetensors");
  EXPECT_EQ(member_of(snapshot / "adapter", "adapter_model.safetensors"), snapshot / "adapter/adapter_model.safetensors");
  EXPECT_EQ(member_of(snapshot, "shared.safetensors"), snapshot / "shared.safetensors");
  EXPECT_TRUE(contains(error_of([&] { member_of(snapshot, "other.safetensors"); }), "outside its directory"));
}

}  // namespace qft
