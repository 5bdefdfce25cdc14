// The log file: one folder for each part of a process' work.
#include "qft/core/log.h"

#include <fstream>
#include <sstream>

#include "io/temp_dir.h"
#include <gtest/gtest.h>

namespace qft::log {
namespace {

std::string said_in(const std::filesystem::path& dir) {
  std::ifstream in(dir / "rank-0.log");
  return (std::ostringstream() << in.rdbuf()).str();
}

TEST(LogFile, HoldsWhatIsSaidFromItsOpeningToTheNext) {
  const test::TempDir dir;
  const auto a = dir.path() / "a", b = dir.path() / "b";
  open_file(a, Severity::info);
  info("first");
  open_file(b, Severity::info);
  info("second");
  close_file();
  info("third");
  open_file(a, Severity::info);
  info("fourth");
  close_file();
  EXPECT_NE(said_in(a).find("first"), std::string::npos);
  EXPECT_NE(said_in(a).find("fourth"), std::string::npos) << "the file is appended to";
  EXPECT_NE(said_in(b).find("second"), std::string::npos);
  EXPECT_EQ(said_in(a).find("second"), std::string::npos);
  EXPECT_EQ((said_in(a) + said_in(b)).find("third"), std::string::npos);
}

}  // namespace
}  // namespace qft::log
