#include "qft/console/history.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "io/temp_dir.h"
#include <gtest/gtest.h>

namespace qft::console {
namespace {

namespace fs = std::filesystem;

class HistoryTest : public testing::Test {
 protected:
  fs::path file() const { return folder_ / "state/qft/chat_history"; }

  test::TempDir folder_;
};

TEST_F(HistoryTest, FileIsPrivateAndKeepsLineBreaks) {
  const std::string text = "one\\n\ntwo\\";
  History(file()).add(text);
  EXPECT_EQ(fs::status(file()).permissions(), fs::perms::owner_read | fs::perms::owner_write);
  EXPECT_EQ(fs::status(file().parent_path()).permissions(), fs::perms::owner_all);
  EXPECT_EQ(History(file()).texts(), std::vector{text});
}

TEST_F(HistoryTest, LastTextsAreKept) {
  {
    History history(file());
    for (std::size_t i = 0; i < History::kKept + 5; ++i) history.add(std::to_string(i));
    EXPECT_EQ(history.texts().size(), History::kKept);
  }
  std::ifstream in(file());
  std::string line;
  std::size_t lines = 0;
  while (std::getline(in, line)) ++lines;
  EXPECT_EQ(lines, History::kKept);
  const History again(file());
  EXPECT_EQ(again.texts().front(), "5");
  EXPECT_EQ(std::distance(fs::directory_iterator(file().parent_path()), {}), 1) << "there are no other files";
}

TEST_F(HistoryTest, TwoProgramsShareAFile) {
  History one(file()), two(file());
  one.add("a");
  two.add("b");
  one.add("c");
  one.add("c");
  EXPECT_EQ(History(file()).texts(), (std::vector<std::string>{"a", "b", "c"}));
}

TEST_F(HistoryTest, MemoryServesWhereAFileCannot) {
  std::ofstream(folder_ / "state") << "no folder";
  History history(file()), none("");
  history.add("a");
  none.add("a");
  EXPECT_EQ(history.texts().size(), 1u);
  EXPECT_EQ(none.texts().size(), 1u);
}

TEST_F(HistoryTest, EnvironmentNamesTheFile) {
  setenv("HOME", "/home/me", 1);
  setenv("XDG_STATE_HOME", "relative", 1);
  EXPECT_EQ(history_file("h"), "/home/me/.local/state/qft/h");
  setenv("XDG_STATE_HOME", "/state", 1);
  EXPECT_EQ(history_file("h"), "/state/qft/h");
  unsetenv("XDG_STATE_HOME");
  unsetenv("HOME");
  EXPECT_EQ(history_file("h"), "");
}

}  // namespace
}  // namespace qft::console
