// Device memory: only queued work touches it, in order.
#include <cmath>
#include <csignal>

#include "fixture.h"
#include <c10/util/Exception.h>

namespace qft::sim {
namespace {

using SimDeath = Sim;

TEST_F(SimDeath, ATouchByTheHostEndsTheProcess) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        set_label("weights");
        const at::Tensor x = at::zeros({1000}, on_device());
        static_cast<float*>(x.mutable_data_ptr())[3] = 1;
      },
      testing::ExitedWithCode(70),
      "the host touches device memory, 12 bytes into allocation .*4000 bytes, by 'zeros', 'weights'");
}

TEST_F(SimDeath, OtherFaultsAreNotItsOwn) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        volatile int* const nothing = reinterpret_cast<int*>(8);  // NOLINT
        *nothing = 1;
      },
      testing::KilledBySignal(SIGSEGV), "");
}

// Whether memory was used before depends on other work, so fresh memory needs the order too.
TEST_F(Sim, OtherStreamsComeAfterTheAllocation) {
  const c10::Stream other = new_stream();
  at::Tensor before = at::zeros({256}, on_device());
  const at::Tensor x = at::empty({100'000}, on_device());
  EXPECT_THROW(enqueue(other, "use", {{x.storage().data(), 4, true}}, [] {}), c10::Error);
  expect_error({"'use'", "'allocation"});
  order(main_stream(), other);
  enqueue(other, "use", {{x.storage().data(), 4, true}}, [] {});
  other.synchronize();
}

TEST_F(Sim, FreedMemoryIsPoisonedInItsTurn) {
  const c10::Stream s = new_stream();
  const c10::StreamGuard in_s(s);
  at::Tensor x = at::full({64}, 5.0, on_device());
  const void* const data = x.storage().data();
  float in_time = 0, too_late = 0;
  const auto* const value = static_cast<const float*>(writable(data));
  enqueue(s, "in time", {{data, 4, false}}, [&, value] { in_time = *value; });
  x.reset();
  EXPECT_THROW(enqueue(s, "too late", {{data, 4, false}}, [] {}), c10::Error);
  expect_error({"'too late'", "reads 4 bytes of freed memory"});
  enqueue(s, "without saying so", {}, [&, value] { too_late = *value; });
  s.synchronize();
  EXPECT_EQ(in_time, 5);
  EXPECT_TRUE(std::isnan(too_late));
  EXPECT_TRUE(at::empty({64}, on_device()).isnan().all().item<bool>()) << "and so is memory that was never used";
}

TEST_F(Sim, FreedMemoryIsAtOnceItsStreamsAgain) {
  const c10::Stream s = new_stream(), other = new_stream();
  const c10::StreamGuard in_s(s);
  at::Tensor x = at::zeros({3000}, on_device());
  const void* const data = x.storage().data();
  x.reset();
  {
    const c10::StreamGuard in_other(other);
    EXPECT_NE(at::empty({3000}, on_device()).storage().data(), data) << "the first stream may still use it";
  }
  x = at::empty({3000}, on_device());
  EXPECT_EQ(x.storage().data(), data);
}

TEST_F(Sim, AFreeWhileAnotherStreamUsesItIsAnError) {
  const c10::Stream other = new_stream();
  at::Tensor x = at::zeros({50}, on_device());
  order(main_stream(), other);
  enqueue(other, "reader", {{x.storage().data(), 200, false}}, [] {});
  x.reset();
  EXPECT_THROW(at::zeros({1}, on_device()), c10::Error) << "the next call says so";
  expect_error({"is freed while 'reader' in stream", "reads it", "recordStream"});
  guard().synchronizeDevice(0);

  x = at::zeros({50}, on_device());
  order(main_stream(), other);
  enqueue(other, "reader", {{x.storage().data(), 200, false}}, [] {});
  order(other, main_stream());
  x.reset();
}

TEST_F(Sim, RecordedStreamsKeepMemory) {
  const c10::Stream other = new_stream();
  at::Tensor x = at::full({7000}, 1.0, on_device());
  const void* const data = x.storage().data();
  order(main_stream(), other);
  float seen = 0;
  enqueue(other, "reader", {{data, 4, false}}, [&, p = static_cast<const float*>(writable(data))] { seen = *p; });
  x.record_stream(other);
  x.reset();
  const at::Tensor y = at::zeros({7000}, on_device());
  EXPECT_NE(y.storage().data(), data);
  main_stream().synchronize();
  other.synchronize();
  EXPECT_EQ(seen, 1);
}

TEST_F(Sim, CapacityAndStatistics) {
  allocator().emptyCache();
  allocator().resetPeakStats(0);
  const auto free_before = allocator().getMemoryInfo(0).first;
  const auto used_before = allocator().getDeviceStats(0).allocated_bytes[0].current;
  {
    const at::Tensor x = at::empty({1 << 20}, on_device(at::kByte));
    EXPECT_EQ(allocator().getMemoryInfo(0).first, free_before - (1 << 20));
    EXPECT_THROW(at::empty({kMemory}, on_device(at::kByte)), c10::OutOfMemoryError);
    // Each in a separate stream that the host does not wait for: allocation waits for freed memory before it fails.
    for (int i = 0; i < 8; ++i) {
      const c10::StreamGuard in(new_stream());
      const at::Tensor large = at::empty({80 << 20}, on_device(at::kByte));
    }
  }
  EXPECT_EQ(allocator().getDeviceStats(0).allocated_bytes[0].current, used_before);
  EXPECT_EQ(peak_use() - used_before, (1 << 20) + (80 << 20));
  EXPECT_GE(allocator().getDeviceStats(0).num_ooms, 1);
}

TEST_F(Sim, FreedMemoryIsKeptUntilSomebodyEmptiesTheCache) {
  allocator().emptyCache();
  const auto reserved = [] { return allocator().getDeviceStats(0).reserved_bytes[0].current; };
  const auto before = reserved();
  const auto free_before = allocator().getMemoryInfo(0).first;
  at::Tensor small = at::empty({3 << 20}, on_device(at::kByte));
  small = at::Tensor();
  EXPECT_EQ(reserved() - before, 3 << 20);
  at::Tensor large = at::empty({4 << 20}, on_device(at::kByte));
  EXPECT_EQ(reserved() - before, 7 << 20) << "beside what is kept";
  at::Tensor fits = at::empty({2 << 20}, on_device(at::kByte));
  EXPECT_EQ(reserved() - before, 7 << 20) << "in what is kept";
  EXPECT_EQ(allocator().getMemoryInfo(0).first, free_before - (7 << 20));
  allocator().emptyCache();
  EXPECT_EQ(reserved() - before, 7 << 20) << "in use";
  fits = large = at::Tensor();
  allocator().emptyCache();
  EXPECT_EQ(reserved(), before);
}

TEST_F(Sim, DevicesHaveMemoryAndStreamsOfTheirOwn) {
  if (guard().deviceCount() < 2) GTEST_SKIP() << "QFT_SIM_DEVICES=2 has two";
  const c10::Device second(device().type(), 1);
  const auto used = allocator().getDeviceStats(0).allocated_bytes[0].current;
  const at::Tensor x = at::ones({5}, at::TensorOptions(second)), y = x + 1;
  EXPECT_EQ(y.device(), second);
  EXPECT_EQ(is_device_memory(y.storage().data(), 20)->device, 1);
  EXPECT_EQ(allocator().getDeviceStats(0).allocated_bytes[0].current, used);
  EXPECT_EQ(y.sum().item<float>(), 10);
  EXPECT_EQ(guard().getStream(second).device(), second);
  EXPECT_THROW(at::mul(x, at::ones({5}, on_device())), c10::Error);
  guard().synchronizeDevice(1);
}

}  // namespace
}  // namespace qft::sim
