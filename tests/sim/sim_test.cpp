// Streams, events, and the order of work between them.
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <thread>

#include "fixture.h"
#include <c10/util/Exception.h>

namespace qft::sim {
namespace {

using SimDeath = Sim;

TEST_F(Sim, IsADeviceOfLibTorch) {
  std::string why;
  EXPECT_GE(backend().count(why), 1);
  EXPECT_EQ(c10::Device("sim:0"), device());
  const at::Tensor x = at::ones({3}, on_device());
  EXPECT_EQ(x.device().str(), "sim:0");
  EXPECT_TRUE(is_device_memory(x.storage().data(), 12));
  EXPECT_FALSE(is_device_memory(x.storage().data(), 13)) << "only what was asked for";
  EXPECT_FALSE(is_device_memory(&why, 1));
  EXPECT_EQ(backend().facts(0).memory, kMemory);
}

TEST_F(SimDeath, ErrorsThatNobodyTookEndTheProcess) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto misuse = [] {
    const at::Tensor x = at::zeros({4}, on_device());
    const c10::StreamGuard other(new_stream());
    try {
      x.add(1);
    } catch (const c10::Error&) {  // like a program that continues
    }
  };
  EXPECT_EXIT((misuse(), std::exit(0)), testing::ExitedWithCode(1), "ends with 1 error in its use of the device");
  EXPECT_EXIT((misuse(), std::quick_exit(0)), testing::ExitedWithCode(1),
              "ends with 1 error in its use of the device");  // like most programs
  EXPECT_EXIT((misuse(), errors(), std::exit(0)), testing::ExitedWithCode(0), "");
}

TEST_F(Sim, WorkIsDoneWhenTheHostWaits) {
  int done = 0;
  enqueue(main_stream(), "count", {}, [&] { ++done; });
  const auto before = counters();
  EXPECT_EQ(done, 0);
  main_stream().synchronize();
  EXPECT_EQ(done, 1);
  EXPECT_EQ(counters().run, before.run + 1);
  EXPECT_EQ(counters().waits, before.waits + 1);
}

TEST_F(Sim, AWaitDoesNoMoreThanItNeeds) {
  const c10::Stream a = new_stream(), b = new_stream(), c = new_stream();
  std::string order_done;
  enqueue(a, "a", {}, [&] { order_done += 'a'; });
  c10::Event after_a(c10::DeviceType::PrivateUse1);
  after_a.record(a);
  enqueue(a, "A", {}, [&] { order_done += 'A'; });
  after_a.block(b);
  enqueue(b, "b", {}, [&] { order_done += 'b'; });
  enqueue(c, "c", {}, [&] { order_done += 'c'; });
  b.synchronize();
  EXPECT_EQ(order_done, "ab") << "neither what comes later in a, nor c";
  guard().synchronizeDevice(0);
  EXPECT_EQ(order_done.size(), 4U);
  if (std::getenv("QFT_SIM_SEED") == nullptr) {
    EXPECT_EQ(order_done, "abcA") << "the last stream first";
  }
}

TEST_F(Sim, PollingEnds) {
  const c10::Stream s = new_stream();
  int done = 0;
  for (int i = 0; i < 3; ++i) enqueue(s, "count", {}, [&] { ++done; });
  c10::Event event(c10::DeviceType::PrivateUse1);
  event.record(s);
  EXPECT_FALSE(event.query());
  EXPECT_EQ(done, 0);
  int polls = 1;
  while (!event.query()) ++polls;
  EXPECT_EQ(done, 3);
  EXPECT_GT(polls, 3);
  EXPECT_TRUE(s.query());
}

TEST_F(Sim, TimesBetweenEvents) {
  c10::Event first(c10::DeviceType::PrivateUse1, c10::EventFlag::BACKEND_DEFAULT),
      second(c10::DeviceType::PrivateUse1, c10::EventFlag::BACKEND_DEFAULT);
  first.record(main_stream());
  second.record(main_stream());
  EXPECT_THROW(first.elapsedTime(second), c10::Error) << "they have not happened";
  second.synchronize();
  EXPECT_GE(first.elapsedTime(second), 0);
}

// The device may happen to run either stream first: both orders are found, without running anything.
TEST_F(Sim, UnorderedWorkIsAnErrorWhicheverComesFirst) {
  const c10::Stream a = new_stream(), b = new_stream();
  for (const bool reads_first : {true, false}) {
    set_label("loss");
    const at::Tensor x = at::zeros({100}, on_device());
    set_label("");
    guard().synchronizeDevice(0);
    const void* const data = x.storage().data();
    enqueue(a, "first", {{data, 400, !reads_first}}, [] {});
    EXPECT_THROW(enqueue(b, "second", {{data, 400, reads_first}}, [] {}), c10::Error);
    expect_error({"'second'", reads_first ? "writes" : "reads", "'first'", "stream", "'loss'", "no order between them"});
    order(a, b);
    enqueue(b, "second", {{data, 400, true}}, [] {});
    guard().synchronizeDevice(0);
  }
}

TEST_F(Sim, WorkOnOtherBytesNeedsNoOrder) {
  const c10::Stream a = new_stream(), b = new_stream();
  const at::Tensor x = at::zeros({4, 6}, on_device());
  guard().synchronizeDevice(0);
  const c10::StreamGuard in_a(a);
  x.narrow(1, 0, 3).fill_(1);
  {
    const c10::StreamGuard in_b(b);
    x.narrow(1, 3, 3).fill_(2);  // these columns lie between the other tensor's columns
    EXPECT_THROW(x.narrow(1, 2, 1).fill_(3), c10::Error);
    expect_error({"'fill_.Scalar'"});
  }
  order(b, a);
  EXPECT_EQ(x.sum().item<float>(), 36);
}

TEST_F(Sim, ReadersNeedNoOrderAmongThem) {
  const c10::Stream a = new_stream(), b = new_stream();
  const at::Tensor x = at::ones({8}, on_device());
  guard().synchronizeDevice(0);
  enqueue(a, "one", {{x.storage().data(), 32, false}}, [] {});
  enqueue(b, "two", {{x.storage().data(), 32, false}}, [] {});
  EXPECT_THROW(x.add_(1), c10::Error);
  expect_error({"add", "'one'"});
  order(a, main_stream());
  EXPECT_THROW(x.add_(1), c10::Error) << "the other one still reads";
  expect_error({"add", "'two'"});
  order(b, main_stream());
  at::Tensor(x).add_(1);
}

TEST_F(Sim, AnOrderMayGoByWayOfOtherStreams) {
  const c10::Stream a = new_stream(), b = new_stream(), c = new_stream();
  const at::Tensor x = at::zeros({8}, on_device());
  order(main_stream(), a);
  enqueue(a, "write", {{x.storage().data(), 32, true}}, [] {});
  order(a, b);
  order(b, c);
  enqueue(c, "read", {{x.storage().data(), 32, false}}, [] {});
  c.synchronize();
  at::Tensor(x).add_(1);  // the host waited, and its new work comes later
}

TEST_F(Sim, ErrorsOfWorkAreThrownAtTheNextWait) {
  enqueue(main_stream(), "fails", {}, [] { throw std::runtime_error("no such thing"); });
  EXPECT_THROW(main_stream().synchronize(), std::runtime_error);
  main_stream().synchronize();
}

TEST_F(Sim, BlockingWorkLetsOthersHaveTheirTurn) {
  const c10::Stream a = new_stream(), b = new_stream();
  bool came = false;
  int tries = 0;
  enqueue_blocking(a, "collective", {}, [&] { return ++tries, came ? Progress::done : Progress::not_yet; });
  // The first one can continue only after work in a stream that nobody waits for.
  enqueue_blocking(b, "its peer", {}, [&] { return came = true, Progress::done; });
  a.synchronize();
  EXPECT_GE(tries, 1);
}

TEST_F(SimDeath, BlockingWorkThatNeverGoesOnDoesNotHoldTheEndUp) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto stuck = [] {
    enqueue_blocking(new_stream(), "collective", {}, [] { return Progress::not_yet; });
    std::this_thread::sleep_for(std::chrono::milliseconds(30));
  };
  EXPECT_EXIT((stuck(), std::exit(0)), testing::ExitedWithCode(0), "");
}

TEST_F(Sim, BlockingWorkStartsWithoutAWait) {
  std::atomic<bool> came = false;
  enqueue_blocking(new_stream(), "collective", {}, [&] { return came = true, Progress::done; });
  for (int i = 0; i < 1000 && !came; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EXPECT_TRUE(came) << "another process may wait for it";
}

TEST_F(Sim, StreamsHaveHandles) {
  const c10::Stream s = new_stream();
  EXPECT_EQ(stream_of(s.native_handle()), s);
  EXPECT_THROW(stream_of(nullptr), c10::Error);
}

TEST_F(Sim, ThreadsHaveCurrentStreamsOfTheirOwn) {
  const c10::StreamGuard here(new_stream());
  c10::StreamId there = -1;
  std::thread([&] { there = guard().getStream(device()).id(); }).join();
  EXPECT_EQ(there, 0);
  EXPECT_NE(guard().getStream(device()).id(), 0);
}

}  // namespace
}  // namespace qft::sim
