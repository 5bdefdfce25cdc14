#include "qft/model/arena.h"

#include <gtest/gtest.h>

namespace qft::model {
namespace {

TEST(Arena, HoldsWhatWasInUseAtMost) {
  Arena arena{c10::Device(c10::kCPU)};
  arena.reserve(100 << 20);
  EXPECT_EQ(arena.bytes_in_use(), 0) << "no page of it is touched";
  const auto mark = arena.mark();
  arena.alloc({1 << 20}, at::kByte);
  arena.alloc({2 << 20}, at::kByte);
  arena.release(mark);
  arena.alloc({1 << 20}, at::kByte);
  EXPECT_EQ(arena.bytes_in_use(), 3 << 20);
}

}  // namespace
}  // namespace qft::model
