#include "qft/core/program.h"

#include "qft/core/error.h"

#include <stdexcept>

#include <gtest/gtest.h>

namespace qft {
namespace {

TEST(Program, ErrorsBecomeExitCodesAndALine) {
  EXPECT_EQ(run_program([] { return 7; }), 7);
  testing::internal::CaptureStderr();
  EXPECT_EQ(run_program([]() -> int { fail("no disk"); }), kExitFailed);
  EXPECT_EQ(run_program([]() -> int { fail_config("no such key"); }), kExitUsage);
  EXPECT_EQ(run_program([]() -> int { throw std::length_error("too long"); }), kExitFailed);
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "error: no disk\nerror: no such key\nerror: too long\n");
}

}  // namespace
}  // namespace qft
