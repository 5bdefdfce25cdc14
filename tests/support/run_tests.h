// Ends a GoogleTest program such that ctest cannot mistake zero tests for success.
#pragma once

#include <cstdio>
#include <string>

#include <gtest/gtest.h>

namespace qft::test {

constexpr int kSkipped = 77;  ///< shown by ctest as "Skipped"

/// Like RUN_ALL_TESTS(), but returns kSkipped if every selected test was skipped, and 1 if the filter selects none.
inline int run_all_tests() {
  const auto& tests = *testing::UnitTest::GetInstance();
  if (RUN_ALL_TESTS() != 0) return 1;
  if (testing::GTEST_FLAG(list_tests)) return 0;
  if (tests.test_to_run_count() == 0) {
    std::fprintf(stderr, "--gtest_filter='%s' selects none of the %d tests: nothing was tested\n",
                 std::string(testing::GTEST_FLAG(filter)).c_str(), tests.total_test_count());
    return 1;
  }
  return tests.skipped_test_count() == tests.test_to_run_count() ? kSkipped : 0;
}

}  // namespace qft::test
