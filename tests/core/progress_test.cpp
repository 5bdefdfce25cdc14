#include "qft/core/progress.h"

#include "qft/core/log.h"

#include <functional>
#include <string>

#include <gtest/gtest.h>

namespace qft {
namespace {

// stderr is a file here, so there is no terminal.
std::string printed(const std::function<void(Progress&)>& body, Progress::Clock::duration first_line) {
  log::init({});
  testing::internal::CaptureStderr();
  {
    Progress bar("train", 200, true, first_line);
    body(bar);
  }
  return testing::internal::GetCapturedStderr();
}

TEST(Progress, WithoutATerminalIsALineNowAndThen) {
  const auto text = printed([](Progress& bar) { bar.update(50, "loss 1.5"); }, {});
  EXPECT_NE(text.find("train 50/200  00:00<00:00  loss 1.5\n"), std::string::npos) << text;
  EXPECT_EQ(text.find('\r'), std::string::npos) << text;
}

TEST(Progress, WaitsForItsFirstLineAndAfterThoseOfOthers) {
  EXPECT_EQ(printed([](Progress& bar) { bar.update(50); }, std::chrono::minutes(1)), "");
  const auto wait = std::chrono::milliseconds(50);
  const auto spin = [&] {
    for (const auto end = Progress::Clock::now() + wait; Progress::Clock::now() < end;) {
    }
  };
  const auto text = printed(
      [&](Progress& bar) {
        spin();
        bar.clear();
        bar.update(1);
        spin();
        bar.update(2);
        bar.update(3);
      },
      wait);
  EXPECT_EQ(text.find("train 1/"), std::string::npos) << text;
  EXPECT_NE(text.find("train 2/"), std::string::npos) << text;
  EXPECT_EQ(text.find("train 3/"), std::string::npos) << text;
}

}  // namespace
}  // namespace qft
