#include "cuda/chips.h"

#include <gtest/gtest.h>

namespace qft::cuda {
namespace {

/// A string like LibTorch's build configuration.
constexpr const char* kLibTorch =
    "  - NVCC architecture flags: -gencode;arch=compute_75,code=sm_75;-gencode;arch=compute_90,code=sm_90\n";

TEST(Chips, ParsesNvccOptions) {
  const auto code =
      compiled_code("--generate-code=arch=compute_80,code=[compute_80,sm_80,sm_121] -gencode arch=compute_90a,code=sm_90a");
  ASSERT_EQ(code.size(), 4U);
  EXPECT_TRUE(code[0].ptx);
  EXPECT_EQ(code[0].chip, 80);
  EXPECT_FALSE(code[2].ptx);
  EXPECT_EQ(code[2].chip, 121);
  EXPECT_EQ(code[3].chip, 90);
  EXPECT_EQ(code[3].only, 'a');
  EXPECT_EQ(compiled_code(kLibTorch).size(), 2U);
  EXPECT_TRUE(compiled_code("native").empty());
}

TEST(Chips, MachineCodeRunsOnLaterChipsOfItsMajorVersionOnly) {
  const Code code{.chip = 80};
  EXPECT_TRUE(code.runs_on(80));
  EXPECT_TRUE(code.runs_on(89));
  EXPECT_FALSE(code.runs_on(75));
  EXPECT_FALSE(code.runs_on(90));
  EXPECT_TRUE((Code{.chip = 120}.runs_on(121)));
  EXPECT_FALSE((Code{.chip = 90, .only = 'a'}.runs_on(91)));
  EXPECT_TRUE((Code{.chip = 100, .only = 'f', .ptx = true}.runs_on(103)));
  EXPECT_FALSE((Code{.chip = 100, .only = 'f', .ptx = true}.runs_on(120)));
}

TEST(Chips, PtxRunsOnAllLaterChips) {
  const Code code{.chip = 80, .ptx = true};
  EXPECT_TRUE(code.runs_on(90));
  EXPECT_TRUE(code.runs_on(121));
  EXPECT_FALSE(code.runs_on(75));
}

TEST(Chips, AChipWithoutKernelsIsRefusedWithBothVersions) {
  EXPECT_EQ(chip_obstacle(70, "LibTorch's", kLibTorch),
            "its compute capability is 7.0, but LibTorch's kernels are compiled for 7.5, 9.0");
  EXPECT_EQ(chip_obstacle(70, "qft's", "--generate-code=arch=compute_80,code=[compute_80,sm_80,sm_90]"),
            "its compute capability is 7.0, but qft's kernels are compiled for 8.0, 9.0 and chips newer than 8.0");
  EXPECT_EQ(chip_obstacle(90, "LibTorch's", kLibTorch), "");
  EXPECT_EQ(chip_obstacle(121, "qft's", "--generate-code=arch=compute_80,code=[compute_80]"), "");
  // resolved by CMake; qft cannot tell, and CUDA reports an error at the first kernel
  EXPECT_EQ(chip_obstacle(70, "qft's", "native"), "");
}

}  // namespace
}  // namespace qft::cuda
