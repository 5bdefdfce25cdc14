// Tests how this program itself ends, as ctest sees it.
#include <cstdlib>
#include <filesystem>
#include <string>
#include <sys/wait.h>

#include <gtest/gtest.h>

namespace {

int run_self(const std::string& filter) {
  const std::string self = std::filesystem::read_symlink("/proc/self/exe").string();
  const int status =
      std::system(("'" + self + "' --gtest_also_run_disabled_tests --gtest_filter='" + filter + "' >/dev/null 2>&1").c_str());
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST(DISABLED_Probe, Passes) {}
TEST(DISABLED_Probe, Fails) {
  FAIL();
}
TEST(DISABLED_Probe, Skips) {
  GTEST_SKIP() << "as asked";
}
TEST(DISABLED_Probe, SkipsToo) {
  GTEST_SKIP() << "as asked";
}

TEST(Endings, OnlySkippedTestsAreASkip) {
  EXPECT_EQ(run_self("DISABLED_Probe.Skips*"), 77);
}

TEST(Endings, OneTestThatRanIsNone) {
  EXPECT_EQ(run_self("DISABLED_Probe.Skips*:DISABLED_Probe.Passes"), 0);
}

TEST(Endings, FailureComesFirst) {
  EXPECT_EQ(run_self("DISABLED_Probe.Skips*:DISABLED_Probe.Fails"), 1);
}

TEST(Endings, AFilterThatLeavesNoTestFails) {
  EXPECT_EQ(run_self("DISABLED_Probe.Skipps"), 1);
}

}  // namespace
