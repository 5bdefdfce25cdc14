#include "qft/io/hdf5.h"

#include "qft/io/file.h"

#include <filesystem>
#include <numeric>
#include <string>
#include <thread>

#include "io/temp_dir.h"
#include <gtest/gtest.h>

namespace qft::io::h5 {

using test::contains;
using test::error_of;
using test::read_bytes;
using test::TempDir;
using test::write_bytes;

const std::string kLongText(100000, 'q');

void write_sample(const std::filesystem::path& path) {
  std::vector<std::int32_t> tokens(20000);
  std::iota(tokens.begin(), tokens.end(), -5);
  File file = File::create(path);
  file.set_string("options", kLongText);
  file.set_string("empty", "");
  file.set_strings("sources", {"identity", "", "数据"});
  file.set_strings("none", {});
  file.set_int("version", -3);
  file.set_double("ratio", 0.25);
  file.create_dataset<std::int32_t>("items/tokens", tokens.size()).write<std::int32_t>(0, tokens);
  Dataset spans = file.create_dataset("items/spans", Type::u32, {3, 2});
  spans.write<std::uint32_t>(2, std::vector<std::uint32_t>{2, 3, 4, 5});
  spans.write<std::uint32_t>(0, std::vector<std::uint32_t>{0, 1});
  spans.set_string("unit", "tokens");
  file.create_dataset<std::uint8_t>("items/nothing", 0);
  file.close();
}

TEST(Hdf5, WhatIsWrittenIsReadBack) {
  const TempDir dir;
  write_sample(dir / "f.h5");
  const File file = File::open(dir / "f.h5");
  EXPECT_EQ(file.get_string("options"), kLongText);
  EXPECT_EQ(file.get_string("empty"), "");
  EXPECT_EQ(file.get_strings("sources"), (std::vector<std::string>{"identity", "", "数据"}));
  EXPECT_TRUE(file.get_strings("none").empty());
  EXPECT_EQ(file.get_int("version"), -3);
  EXPECT_EQ(file.get_double("ratio"), 0.25);
  EXPECT_EQ(file.attribute_names().size(), 6u);
  EXPECT_EQ(file.list(), std::vector<std::string>{"items"});
  EXPECT_EQ(file.list("items"), (std::vector<std::string>{"nothing", "spans", "tokens"}));
  const Dataset spans = file.dataset("items/spans");
  EXPECT_EQ(spans.shape(), (std::vector<std::uint64_t>{3, 2}));
  EXPECT_EQ(spans.read_all<std::uint32_t>(), (std::vector<std::uint32_t>{0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(spans.get_string("unit"), "tokens");
  EXPECT_EQ(file.dataset("items/nothing").elements(), 0u);
}

TEST(Hdf5, TheOffsetIsWhereTheBytesAre) {
  const TempDir dir;
  write_sample(dir / "f.h5");
  std::uint64_t offset = 0;
  {
    const File file = File::open(dir / "f.h5");
    offset = file.dataset("items/tokens").offset();
  }
  EXPECT_EQ(offset % 4096, 0u);
  std::int32_t values[3];
  qft::io::File::open_read(dir / "f.h5").pread(offset + 4 * 100, values, sizeof values);
  EXPECT_EQ(values[0], 95);
  EXPECT_EQ(values[2], 97);
}

TEST(Hdf5, EqualContentsGiveEqualBytesWheneverWritten) {
  const TempDir dir;
  write_sample(dir / "a.h5");
  std::this_thread::sleep_for(std::chrono::milliseconds(1100));
  write_sample(dir / "b.h5");
  EXPECT_EQ(read_bytes(dir / "a.h5"), read_bytes(dir / "b.h5"));
}

TEST(Hdf5, ErrorsNameFileObjectAndReason) {
  const TempDir dir;
  EXPECT_TRUE(contains(error_of([&] { File::open(dir / "none.h5"); }), "none.h5"));
  EXPECT_TRUE(contains(error_of([&] { File::create(dir / "no/dir.h5"); }), "No such file"));
  write_bytes(dir / "text.h5", "hello, world: not an HDF5 file");
  EXPECT_TRUE(contains(error_of([&] { File::open(dir / "text.h5"); }), "text.h5' is not an HDF5 file"));
  write_sample(dir / "f.h5");
  {
    const File file = File::open(dir / "f.h5");
    EXPECT_TRUE(contains(error_of([&] { file.dataset("items/missing"); }), "f.h5' has no dataset 'items/missing'"));
    EXPECT_TRUE(contains(error_of([&] { file.dataset("a/b/c"); }), "has no dataset"));
    EXPECT_TRUE(contains(error_of([&] { file.dataset("items"); }), "cannot open dataset"));
    EXPECT_TRUE(contains(error_of([&] { file.list("items/tokens"); }), "cannot open group"));
    EXPECT_TRUE(contains(error_of([&] { file.get_int("missing"); }), "no attribute 'missing'"));
    EXPECT_TRUE(contains(error_of([&] { file.get_int("options"); }), "@options' is not an integer"));
    EXPECT_TRUE(contains(error_of([&] { file.get_string("version"); }), "@version' is not text"));
    EXPECT_TRUE(contains(error_of([&] { file.get_string("sources"); }), "3 elements instead of 1"));
    const Dataset tokens = file.dataset("items/tokens");
    std::vector<std::int32_t> two(2);
    std::vector<float> wrong(2);
    EXPECT_TRUE(contains(error_of([&] { tokens.read<std::int32_t>(19999, two); }), "[19999, 20001)"));
    EXPECT_TRUE(contains(error_of([&] { tokens.read<std::int32_t>(~0ull, two); }), "it has 20000"));
    EXPECT_TRUE(contains(error_of([&] { tokens.read<float>(0, wrong); }), "holds int32, not float32"));
    std::vector<std::uint32_t> one(1);
    EXPECT_TRUE(contains(error_of([&] { file.dataset("items/spans").read<std::uint32_t>(0, one); }), "whole rows of 2"));
    EXPECT_TRUE(contains(error_of([&] { File::open(dir / "f.h5").set_int("x", 1); }), "cannot make attribute"));
  }
  File file = File::create(dir / "g.h5");
  EXPECT_TRUE(contains(error_of([&] { file.set_string("s", std::string_view("a\0b", 3)); }), "NUL"));
  file.set_int("i", 1);
  EXPECT_TRUE(contains(error_of([&] { file.set_int("i", 1); }), "exists"));
  file.close();
  EXPECT_TRUE(contains(error_of([&] { file.contains("x"); }), "is closed"));
}

// Reads everything in the sample; damage may only raise an Error.
void read_everything(const std::filesystem::path& path) {
  const File file = File::open(path);
  for (const std::string& name : file.attribute_names())
    if (name == "sources" || name == "none")
      file.get_strings(name);
    else if (name == "version")
      file.get_int(name);
    else if (name != "ratio")
      file.get_string(name);
  for (const std::string& name : file.list("items")) {
    const Dataset dataset = file.dataset("items/" + name);
    if (dataset.type() == Type::i32) dataset.read_all<std::int32_t>();
    if (dataset.type() == Type::u32) dataset.read_all<std::uint32_t>();
  }
}

TEST(Hdf5, EveryTruncationIsAnError) {
  const TempDir dir;
  write_sample(dir / "f.h5");
  const std::string good = read_bytes(dir / "f.h5");
  for (std::size_t n = 0; n < good.size(); n += n < 3000 ? 1 : 977) {
    write_bytes(dir / "cut.h5", good.substr(0, n));
    EXPECT_THROW(read_everything(dir / "cut.h5"), Error) << n << " of " << good.size() << " bytes";
  }
}

TEST(Hdf5, DamagedStructuresNeverCrash) {
  const TempDir dir;
  write_sample(dir / "f.h5");
  const std::string good = read_bytes(dir / "f.h5");
  std::uint64_t begin = 0, end = 0;
  {
    const File file = File::open(dir / "f.h5");
    begin = file.dataset("items/tokens").offset();
    end = begin + file.dataset("items/tokens").bytes();
  }
  const std::size_t text = good.find(kLongText.substr(0, 50000));
  int refused = 0, tried = 0;
  for (std::size_t i = 0; i < good.size(); ++i) {
    if ((i >= begin && i < end) || (i >= text && i < text + kLongText.size())) continue;  // payload
    if (good[i] == 0 && i % 5 != 0) continue;                                             // unused space, mostly
    std::string bytes = good;
    bytes[i] = static_cast<char>(bytes[i] ^ (1 << (i % 8)));
    write_bytes(dir / "bad.h5", bytes);
    ++tried;
    try {
      read_everything(dir / "bad.h5");
    } catch (const Error&) {
      ++refused;
    }
  }
  EXPECT_GT(tried, 500);
  EXPECT_GT(refused, tried / 4);
}

}  // namespace qft::io::h5
