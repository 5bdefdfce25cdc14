#include "qft/core/program.h"

#include "qft/core/error.h"

#include <gtest/gtest.h>
#include <stdexcept>

namespace qft {
namespace {

TEST(Program, ErrorsBecomeExitCodesAndALineWithTheName) {
  EXPECT_EQ(run_program("tool", [] { return 7; }), 7);
  testing::internal::CaptureStderr();
  EXPECT_EQ(run_program("tool", []() -> int { fail("no disk"); }), kExitFailed);
  EXPECT_EQ(run_program("tool", []() -> int { fail_config("no such key"); }), kExitUsage);
  EXPECT_EQ(run_program("tool", []() -> int { throw std::length_error("too long"); }), kExitFailed);
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "tool: no disk\ntool: no such key\ntool: too long\n");
}

}  // namespace
}  // namespace qft
