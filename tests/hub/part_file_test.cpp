#include "hub/part_file.h"

#include "qft/core/error.h"

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include <gtest/gtest.h>

namespace qft::hub {
namespace {

namespace fs = std::filesystem;

std::string text_of(const fs::path& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

class Part : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = (fs::temp_directory_path() / "qft-part-XXXXXX").string();
    root_ = mkdtemp(name.data());
  }
  void TearDown() override { fs::remove_all(root_); }

  RemoteFile hello_{"hello", 5, RemoteFile::Check::git_blob, "b6fc4c620b67d95f953a5c1c1230aaab5db5a1b0"};  // git's hash
  fs::path root_;
};

TEST_F(Part, GoesOnWhereItStopped) {
  {
    PartFile(root_ / "part", hello_).append("hel");
  }
  PartFile part(root_ / "part", hello_);
  EXPECT_EQ(part.size(), 3U);
  part.append("lo");
  EXPECT_FALSE(part.finish(root_ / "whole"));
  EXPECT_EQ(text_of(root_ / "whole"), "hello");
}

TEST_F(Part, OfAFileWithoutAHashStartsAnew) {
  const RemoteFile unknown{"hello", 5, RemoteFile::Check::size, ""};
  {
    PartFile(root_ / "part", unknown).append("old");
  }
  EXPECT_EQ(PartFile(root_ / "part", unknown).size(), 0U);
}

TEST_F(Part, ThatTwoWriteIsNeverPublishedWithAHole) {
  PartFile first(root_ / "part", hello_), second(root_ / "part", hello_);
  first.append("hel");
  second.clear();
  first.append("lo");
  EXPECT_THROW(static_cast<void>(first.finish(root_ / "whole")), Error);
  EXPECT_FALSE(fs::exists(root_ / "whole"));
  second.append("hello");
  EXPECT_FALSE(second.finish(root_ / "whole"));
  EXPECT_EQ(text_of(root_ / "whole"), "hello");
}

}  // namespace
}  // namespace qft::hub
