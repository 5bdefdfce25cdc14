#include "qft/io/file.h"

#include <filesystem>
#include <string>

#include "io/temp_dir.h"
#include <gtest/gtest.h>

namespace qft::io {

using test::contains;
using test::error_of;
using test::TempDir;
using test::write_bytes;

TEST(File, ReadsExactlyWhatIsAskedFor) {
  const TempDir dir;
  write_bytes(dir / "a", "0123456789");
  const File file = File::open_read(dir / "a");
  EXPECT_EQ(file.size(), 10u);
  std::string got(4, ' ');
  file.pread(3, got.data(), 4);
  EXPECT_EQ(got, "3456");
  file.pread(10, got.data(), 0);
}

TEST(File, AShortReadNamesPathOffsetWantedAndGot) {
  const TempDir dir;
  write_bytes(dir / "a", "0123456789");
  const File file = File::open_read(dir / "a");
  char buffer[16];
  const std::string message = error_of([&] { file.pread(7, buffer, 16); });
  EXPECT_TRUE(contains(message, (dir / "a").string()));
  EXPECT_TRUE(contains(message, "16 bytes at offset 7, got 3"));
}

TEST(File, MissingFilesAndDirectoriesAreRefusedByName) {
  const TempDir dir;
  EXPECT_TRUE(contains(error_of([&] { File::open_read(dir / "none"); }), "none"));
  EXPECT_TRUE(contains(error_of([&] { File::open_read(dir.path()); }), "a directory"));
}

TEST(Mapping, ShowsARangeThatStartsInsideAPage) {
  const TempDir dir;
  std::string text(10000, 'x');
  text.replace(5001, 3, "abc");
  write_bytes(dir / "a", text);
  Mapping map;
  {
    const File file = File::open_read(dir / "a");
    map = Mapping(file, 5001, 3);
    EXPECT_EQ(Mapping(file, 10000, 0).size(), 0u);
    EXPECT_TRUE(contains(error_of([&] { Mapping(file, 9999, 2); }), "it has 10000"));
    EXPECT_TRUE(contains(error_of([&] { Mapping(file, ~0ull, 2); }), "it has 10000"));
  }
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(map.data()), map.size()), "abc");
}

TEST(ReadTextFile, HasALimit) {
  const TempDir dir;
  write_bytes(dir / "a", "0123456789");
  EXPECT_EQ(read_text_file(dir / "a"), "0123456789");
  EXPECT_TRUE(contains(error_of([&] { read_text_file(dir / "a", 9); }), "10 bytes, more than the limit of 9"));
}

TEST(ProbeWritable, MakesTheDirectoryAndLeavesNothingInIt) {
  const TempDir dir;
  probe_writable(dir / "x/y");
  EXPECT_TRUE(std::filesystem::is_empty(dir / "x/y"));
  write_bytes(dir / "file", "");
  EXPECT_TRUE(contains(error_of([&] { probe_writable(dir / "file"); }), "file"));
}

TEST(RequireFree, TakesNothingAndAnEmptyDirectoryOnly) {
  const TempDir dir;
  require_absent_or_empty(dir / "none", "output");
  std::filesystem::create_directory(dir / "empty");
  require_absent_or_empty(dir / "empty", "output");
  EXPECT_TRUE(
      contains(error_of([&] { require_absent_or_empty(dir.path(), "output"); }), "output '" + dir.path().string() + "' exists"));
  std::filesystem::create_symlink("nowhere", dir / "link");
  EXPECT_TRUE(contains(error_of([&] { require_absent_or_empty(dir / "link", "output"); }), "link"));
}

}  // namespace qft::io
