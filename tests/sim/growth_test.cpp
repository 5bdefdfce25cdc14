// Buffers that grow with the micro-batches free their old memory first, and copies of any length pass through pinned memory.
#include "qft/device/backends.h"
#include "qft/device/staged_copy.h"
#include "qft/model/arena.h"
#include "qft/ops/workspace.h"

#include <algorithm>
#include <cstdlib>

#include "fixture.h"
#include "pageable.h"

namespace qft::sim {
namespace {

constexpr std::int64_t kMiB = 1 << 20;

/// Returns the allocator's peak of device memory while `work` ran.
template <class F>
std::int64_t most_reserved(c10::DeviceAllocator& allocator, F&& work) {
  allocator.emptyCache();
  allocator.resetPeakStats(0);
  const std::int64_t before = allocator.getDeviceStats(0).reserved_bytes[0].current;
  work();
  return allocator.getDeviceStats(0).reserved_bytes[0].peak - before;
}

TEST_F(Sim, AnArenaOfGrowingMicroBatchesTakesWhatTheLargestNeeds) {
  const std::int64_t most = most_reserved(allocator(), [] {
    model::Arena arena(device());
    for (std::int64_t need = 8 * kMiB; need <= 40 * kMiB; need += 3 * kMiB / 2) {
      arena.reserve(need);
      const auto mark = arena.mark();
      arena.alloc({need / 2}, at::kByte).zero_();
      arena.alloc({need / 4}, at::kByte).zero_();
      arena.release(mark);
      EXPECT_LE(arena.bytes_in_use(), need + need / 32);
    }
  });
  EXPECT_LE(most, 40 * kMiB / 32 * 33);
}

TEST_F(Sim, AnArenaThatGrewPieceByPieceKeepsNoGaps) {
  model::Arena arena(device());
  for (int step = 0; step < 4; ++step) {
    const auto mark = arena.mark();
    for (int i = 0; i < 4; ++i) arena.alloc({9 * kMiB}, at::kByte).zero_();  // chunks of 16 MiB would have room for one each
    arena.release(mark);
    EXPECT_LE(arena.bytes_in_use(), 36 * kMiB / 32 * 33) << step;
  }
}

TEST_F(Sim, ScratchOfGrowingMicroBatchesTakesWhatTheLargestNeeds) {
  const std::int64_t most = most_reserved(allocator(), [] {
    ops::Workspace workspace(device());
    for (std::int64_t tokens = 100; tokens <= 400; tokens += 7)
      for (const char* name : {"op.a", "op.b", "op.c"}) workspace.get(name, {tokens, 8192}, at::kFloat).zero_();
  });
  EXPECT_LE(most, std::int64_t{3} * 400 * 8192 * 4 / 32 * 33);
}

TEST_F(Sim, StagedCopiesCrossPinnedMemoryOnlyAndChangeNoBit) {
  setenv("QFT_DEVICE", "sim", 1);
  device::load_backends();
  for (const std::int64_t count : {std::int64_t{0}, std::int64_t{1000}, 11 * kMiB + 3}) {  // 44 MiB: three pieces
    const at::Tensor there = at::arange(count, on_device(at::kInt)).mul_(2654435), host = at::empty({count}, at::kInt);
    const auto before = pageable_bytes();
    at::Tensor narrow, back;
    {
      device::StagedCopy staged(device());
      staged.to_host(host, there);
      narrow = staged.on_host(there, at::kHalf);
      back = at::zeros({count}, on_device(at::kInt));
      staged.to_device(back, host);
    }
    EXPECT_EQ(pageable_bytes(), before);
    const at::Tensor expected = there.to(at::kCPU);
    EXPECT_TRUE(host.equal(expected));
    EXPECT_TRUE(narrow.equal(expected.to(at::kHalf)));
    EXPECT_TRUE(back.to(at::kCPU).equal(expected));
  }
}

}  // namespace
}  // namespace qft::sim
