#include "qft/device/memory.h"

#include "qft/core/error.h"
#include "qft/device/device.h"

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <sys/resource.h>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

namespace qft::device {
namespace {

constexpr std::size_t kBlock = std::size_t{64} << 20;

TEST(HostMemory, FollowsWhatIsTouched) {
  const auto before = host_memory();
  EXPECT_GT(before.current, 0);
  EXPECT_GT(before.total, before.current);
  {
    PinnedBuffer buffer(kBlock, c10::kCPU);
    std::memset(buffer.data(), 1, buffer.size());
    const auto during = host_memory();
    EXPECT_GE(during.current, before.current + static_cast<std::int64_t>(kBlock) * 9 / 10);
    EXPECT_GE(during.peak, during.current - (std::int64_t{8} << 20));
  }
  EXPECT_GT(host_memory_available(), 0);
  EXPECT_LE(host_memory_available(), host_memory().total);
}

TEST(HostMemory, ThePeakCanStartAnew) {
  {
    PinnedBuffer buffer(kBlock, c10::kCPU);
    std::memset(buffer.data(), 1, buffer.size());
  }
  const auto high = memory_use(c10::kCPU).peak;
  reset_peak(c10::kCPU);
  const auto low = memory_use(c10::kCPU).peak;
  if (low == high) GTEST_SKIP() << "this kernel does not reset VmHWM";
  EXPECT_LT(low, high - static_cast<std::int64_t>(kBlock) / 2);
}

TEST(MemoryLeft, IsAShareWithinTheProcessLimit) {
  const auto all = memory_left(c10::kCPU, 1);
  EXPECT_GT(all, 0);
  EXPECT_NEAR(static_cast<double>(memory_left(c10::kCPU, 4)), static_cast<double>(all) / 4, static_cast<double>(all) / 20);
  rlimit old{};
  getrlimit(RLIMIT_DATA, &old);
  const rlimit tight{rlim_t{1} << 30, old.rlim_max};
  setrlimit(RLIMIT_DATA, &tight);
  const auto left = memory_left(c10::kCPU, 1);
  setrlimit(RLIMIT_DATA, &old);
  EXPECT_LT(left, (std::int64_t{1} << 30) / 8 * 7);
  EXPECT_GT(left, 0);
}

TEST(PinnedBuffer, IsAlignedAndMoves) {
  PinnedBuffer a(10000, c10::kCPU);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(a.data()) % 4096, 0U);
  EXPECT_FALSE(a.pinned());
  void* const data = a.data();
  PinnedBuffer b = std::move(a);
  EXPECT_EQ(b.data(), data);
  EXPECT_EQ(a.data(), nullptr);
  EXPECT_EQ(a.size(), 0U);
  PinnedBuffer none(0, c10::kCPU);
  EXPECT_EQ(none.data(), nullptr);
}

TEST(PinnedBuffer, SaysHowMuchIsLeftWhereItCannotBeHad) {
  try {
    PinnedBuffer buffer(std::size_t{1} << 60, c10::kCPU);
    FAIL();
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("1152.92 PB"), std::string::npos) << e.what();
    EXPECT_NE(std::string(e.what()).find("available"), std::string::npos) << e.what();
  }
}

TEST(CopyBytes, OnTheCpu) {
  std::vector<int> from = {1, 2, 3};
  std::vector<int> to(3);
  copy_bytes(to.data(), from.data(), sizeof(int) * 3, c10::kCPU);
  EXPECT_EQ(to, from);
  copy_bytes(nullptr, nullptr, 0, c10::kCPU);
}

class CopyBytesOnCuda : public testing::TestWithParam<int> {};

TEST_P(CopyBytesOnCuda, ThereAndBack) {
  const auto device = select_device(fmt::format("cuda:{}", GetParam()));
  PinnedBuffer from(4096, device);
  PinnedBuffer to(4096, device);
  std::memset(from.data(), 7, 4096);
  const DeviceBuffer middle(4096, device);
  EXPECT_GE(memory_use(device).current, 4096);
  copy_bytes(middle.data(), from.data(), 4096, device);
  copy_bytes(to.data(), middle.data(), 4096, device);
  EXPECT_TRUE(from.pinned());
}

// No instance without a GPU.
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(CopyBytesOnCuda);
INSTANTIATE_TEST_SUITE_P(Devices, CopyBytesOnCuda, testing::Range(0, device_count("cuda")));

TEST(TuneAllocator, KeepsTheUsersSettings) {
  setenv("MALLOC_TRIM_THRESHOLD_", "1000000", 1);
  EXPECT_FALSE(tune_allocator());
  unsetenv("MALLOC_TRIM_THRESHOLD_");
}

TEST(HugePages, AreAskedForUnlessTheUserSaysOtherwise) {
  unsetenv("THP_MEM_ALLOC_ENABLE");
  request_huge_pages();
  EXPECT_STREQ(std::getenv("THP_MEM_ALLOC_ENABLE"), "1");
  setenv("THP_MEM_ALLOC_ENABLE", "0", 1);
  request_huge_pages();
  EXPECT_STREQ(std::getenv("THP_MEM_ALLOC_ENABLE"), "0");
  unsetenv("THP_MEM_ALLOC_ENABLE");
}

TEST(TuneAllocator, ReusedBlocksDoNotFaultAgain) {
  if (std::getenv("GLIBC_TUNABLES") != nullptr) GTEST_SKIP() << "GLIBC_TUNABLES is set";
  ASSERT_TRUE(tune_allocator());
  const auto faults_of_a_round = [] {
    rusage before{};
    getrusage(RUSAGE_SELF, &before);
    auto block = std::make_unique_for_overwrite<char[]>(kBlock);
    for (std::size_t i = 0; i < kBlock; i += 4096) static_cast<volatile char*>(block.get())[i] = 1;
    rusage after{};
    getrusage(RUSAGE_SELF, &after);
    return after.ru_minflt - before.ru_minflt;
  };
  const auto first = faults_of_a_round();
  const auto second = faults_of_a_round();
  EXPECT_LT(second, 100) << "first round: " << first;
}

}  // namespace
}  // namespace qft::device
