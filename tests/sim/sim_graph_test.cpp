// Work that is recorded once and replayed.
#include <functional>
#include <memory>
#include <stdexcept>
#include <thread>

#include "fixture.h"
#include <c10/util/Exception.h>

namespace qft::sim {
namespace {

class SimGraphs : public Sim {
 protected:
  std::unique_ptr<device::GraphRecorder> recorder = backend().recorder(0);
  c10::Stream stream = new_stream();
};

TEST_F(SimGraphs, ReplaysWithWhatIsThereThen) {
  const at::Tensor sum = at::zeros({1000}, on_device()), one = at::ones({1000}, on_device());
  const auto add = [&] { at::Tensor(sum).add_(one + one); };  // with a temporary from the graph's memory
  for (int round = 1; round <= 2; ++round) {
    const auto graph = recorder->capture(stream, add);
    EXPECT_EQ(sum.sum().item<float>(), 1000.0F * (round == 1 ? 0 : 4)) << "capturing queues nothing";
    for (int i = 0; i < 2; ++i) graph->replay();
    EXPECT_EQ(sum.sum().item<float>(), 1000.0F * (round == 1 ? 4 : 8));
  }
  const auto graph = recorder->capture(stream, add);
  at::Tensor(one).fill_(0.5);
  graph->replay();
  EXPECT_EQ(sum.sum().item<float>(), 9000);
}

TEST_F(SimGraphs, ACaptureThatBreaksLeavesNothingBehind) {
  const at::Tensor x = at::ones({4}, on_device());
  EXPECT_THROW(recorder->capture(stream,
                                 [&] {
                                   x.add(1);
                                   throw std::runtime_error("no");
                                 }),
               std::runtime_error);
  EXPECT_EQ(guard().getStream(device()), main_stream());
  const auto graph = recorder->capture(stream, [&] { at::Tensor(x).mul_(2); });
  graph->replay();
  EXPECT_EQ(x.sum().item<float>(), 8);
}

TEST_F(SimGraphs, OtherStreamsJoinByEvents) {
  const c10::Stream other = new_stream();
  const at::Tensor x = at::ones({4}, on_device()), y = at::zeros({4}, on_device());
  const auto work = [&](bool fork, bool join) {
    return [&, fork, join] {
      at::Tensor(x).add_(1);
      if (fork) order(stream, other);
      {
        const c10::StreamGuard in_other(other);
        at::Tensor(y).copy_(x);
      }
      if (join) order(other, stream);
    };
  };
  const auto graph = recorder->capture(stream, work(true, true));
  graph->replay();
  graph->replay();
  EXPECT_EQ(y.sum().item<float>(), 12);
  EXPECT_THROW(recorder->capture(stream, work(false, false)), c10::Error);
  expect_error({"is not part of the capture"});
  EXPECT_THROW(recorder->capture(stream, work(true, false)), c10::Error);
  expect_error({"ends without waiting for"});
}

TEST_F(SimGraphs, OrderWithinTheCaptureIsChecked) {
  const c10::Stream other = new_stream();
  const at::Tensor x = at::ones({4}, on_device());
  EXPECT_THROW(recorder->capture(stream,
                                 [&] {
                                   order(stream, other);
                                   at::Tensor(x).add_(1);
                                   const c10::StreamGuard in_other(other);
                                   x.mul(2);
                                 }),
               c10::Error);
  expect_error({"'mul.out'", "'add.out'", "no order between them"});
}

TEST_F(SimGraphs, NothingWaitsInACapture) {
  const at::Tensor x = at::ones({4}, on_device());
  at::Tensor plain = at::ones({4});
  c10::Event before(c10::DeviceType::PrivateUse1);
  before.record(main_stream());
  const auto refused = [&](const std::function<void()>& work, const char* words) {
    EXPECT_THROW(recorder->capture(stream, work), c10::Error);
    expect_error({words});
  };
  refused([&] { x.sum().item(); }, "waits for the device in the capture");
  refused([&] { plain.copy_(x); }, "waits for the device in the capture");
  refused([&] { at::Tensor(x).copy_(plain, true); }, "a copy from pageable memory in a capture");
  refused([&] { guard().synchronizeDevice(0); }, "waits for the device in the capture");
  refused([&] { main_stream().synchronize(); }, "waits for the device in the capture");
  refused([&] { before.block(stream); }, "was recorded outside of the capture");
}

TEST_F(SimGraphs, OtherThreadsGoOn) {
  const at::Tensor x = at::ones({4}, on_device());
  float sum = 0;
  const auto graph = recorder->capture(stream, [&] {
    std::thread([&] { sum = x.sum().item<float>(); }).join();
    at::Tensor(x).add_(1);
  });
  EXPECT_EQ(sum, 4);
}

TEST_F(SimGraphs, MemoryOfTheGraphIsItsOwn) {
  const void* inside = nullptr;
  at::Tensor kept;
  const at::Tensor x = at::ones({2000}, on_device());
  const auto graph = recorder->capture(stream, [&] {
    const void* const first = (x + 1).storage().data();
    const at::Tensor again = x + 2;
    EXPECT_EQ(again.storage().data(), first) << "freed in the capture, and used again";
    inside = first;
    kept = x * 3;
  });
  const c10::StreamGuard in_stream(stream);
  const at::Tensor outside = at::empty({2000}, on_device());
  EXPECT_NE(outside.storage().data(), inside);
  order(main_stream(), stream);
  graph->replay();
  EXPECT_EQ(kept.sum().item<float>(), 6000);
}

TEST_F(SimGraphs, MemoryOutsideMustStay) {
  at::Tensor x = at::ones({4}, on_device());
  const auto graph = recorder->capture(stream, [&] { at::Tensor(x).add_(1); });
  x.reset();
  EXPECT_THROW(graph->replay(), c10::Error);
  expect_error({"graph: add.out", "freed memory"});
}

TEST_F(SimGraphs, PinnedMemoryMustStay) {
  const at::Tensor x = at::zeros({4}, on_device());
  at::Tensor host = pinned({4}).fill_(1);
  const auto graph = recorder->capture(stream, [&] { at::Tensor(x).copy_(host, true); });
  host.reset();
  EXPECT_THROW(graph->replay(), c10::Error);
  expect_error({"graph: copy to the device", "freed pinned memory"});
}

TEST_F(SimGraphs, ReplaysAreOrderedAsOtherWork) {
  const at::Tensor x = at::ones({4}, on_device());
  const auto graph = recorder->capture(stream, [&] { at::Tensor(x).add_(1); });
  graph->replay();
  {
    const c10::StreamGuard other(new_stream());
    EXPECT_THROW(graph->replay(), c10::Error);
  }
  expect_error({"'graph: add.out'", "no order between them"});
}

TEST_F(SimGraphs, CopiesFromPinnedMemory) {
  const at::Tensor host = pinned({4}).fill_(1);
  const at::Tensor x = at::zeros({4}, on_device());
  const auto graph = recorder->capture(stream, [&] { at::Tensor(x).copy_(host, true); });
  host.fill_(5);
  graph->replay();
  EXPECT_EQ(x.sum().item<float>(), 20);
}

}  // namespace
}  // namespace qft::sim
