#include "qft/core/command.h"

#include <gtest/gtest.h>

namespace qft {
namespace {

using std::chrono::milliseconds;

TEST(AskProgram, ReturnsWhatItSays) {
  const CommandOutput answer = run_command({"printf", "%s|", "one", "$(two)"}, milliseconds(5000));
  EXPECT_TRUE(answer.ok()) << answer.error;
  EXPECT_EQ(answer.text, "one|$(two)|");
}

TEST(AskProgram, ThatFailsOrIsMissingSaysWhy) {
  EXPECT_EQ(run_command({"sh", "-c", "exit 3"}, milliseconds(5000)).error, "sh exited with code 3");
  EXPECT_EQ(run_command({"sh", "-c", "kill -9 $$"}, milliseconds(5000)).error, "sh was killed by signal 9");
  EXPECT_FALSE(run_command({"no-such-program"}, milliseconds(5000)).ok());
}

TEST(AskProgram, ThatHangsIsNotWaitedFor) {
  const auto began = std::chrono::steady_clock::now();
  for (const char* script : {"sleep 60", "exec >&-; sleep 60", "trap '' TERM; sleep 60 & wait", "yes"})
    EXPECT_FALSE(run_command({"sh", "-c", script}, milliseconds(300)).ok()) << script;
  EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds(20));
}

TEST(AskProgram, GetsNoInput) {
  EXPECT_EQ(run_command({"cat"}, milliseconds(5000)).text, "");
}

}  // namespace
}  // namespace qft
