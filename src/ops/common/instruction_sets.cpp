#include "instruction_sets.h"

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string_view>

#include <hwy/targets.h>

namespace qft::ops {
namespace {

struct Level {
  std::string_view name;
  std::int64_t newest;  ///< Highway's targets are bits; newer targets have lower bits
};
#if HWY_ARCH_X86
constexpr Level kLevels[] = {{"baseline", HWY_SSE4}, {"avx2", HWY_AVX2}, {"avx512", HWY_AVX3}};
#else
constexpr Level kLevels[] = {{"baseline", 1}};
#endif

bool hold() {
  const char* wish = std::getenv("QFT_CPU_ISA");
  if (wish == nullptr) return false;
  for (const Level& level : kLevels)
    if (level.name == wish) {
      hwy::DisableTargets(level.newest - 1);
      return true;
    }
  std::fprintf(stderr, "error: QFT_CPU_ISA is '%s': allowed are baseline, and on x86 avx2 or avx512\n", wish);
  std::exit(2);
}

const bool kHeld = hold();

}  // namespace

bool instruction_sets_are_held() {
  return kHeld;
}

}  // namespace qft::ops
