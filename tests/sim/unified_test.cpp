// A device that shares the host's memory, like GB10.
#include "qft/device/backends.h"
#include "qft/device/device.h"
#include "qft/device/memory.h"

#include <cstdlib>

#include <ATen/ops/empty.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <gtest/gtest.h>

namespace qft::device {
namespace {

const bool kAskedUnified = setenv("QFT_DEVICE", "sim", 1) == 0 && setenv("QFT_SIM_UNIFIED", "1", 1) == 0;

TEST(UnifiedMemory, WhatIsLeftIsTheSystems) {
  ASSERT_TRUE(kAskedUnified);
  const c10::Device device = select_device("sim");
  EXPECT_FALSE(has_own_memory(device));
  EXPECT_FALSE(has_own_memory(c10::kCPU));
  const auto left = memory_left(device, 1);
  const auto free = static_cast<std::int64_t>(c10::getDeviceAllocator(device.type())->getMemoryInfo(device.index()).first);
  EXPECT_GT(left, 2 * free);  // the driver counts file caches as used
  EXPECT_LE(left, memory_use(device).total);
  EXPECT_LE(left, host_memory_limit().bytes);
  EXPECT_NEAR(static_cast<double>(memory_left(device, 2)), static_cast<double>(left) / 2, static_cast<double>(left) / 20);
  constexpr std::int64_t kTaken = std::int64_t{256} << 20;
  const at::Tensor taken = at::empty({kTaken}, at::TensorOptions(device).dtype(at::kByte));
  EXPECT_LE(memory_left(device, 1), left - kTaken * 9 / 10);
}

}  // namespace
}  // namespace qft::device
