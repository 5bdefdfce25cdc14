#include "qft/device/graph.h"

#include "qft/device/device.h"

#include <stdexcept>

#include <ATen/TensorOperators.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

namespace qft::device {
namespace {

TEST(Graph, OnTheCpuIsWhatWasCapturedCalledAgain) {
  const GraphPool pool(c10::Device("cpu"));
  int value = 1, sum = 0;
  pool.warm_up([&] { sum += value; });
  EXPECT_EQ(sum, 1);
  const auto graph = pool.capture([&sum, value] { sum += value; });
  EXPECT_EQ(sum, 1) << "capturing does nothing yet";
  value = 100;
  for (int i = 0; i < 2; ++i) graph->replay();
  EXPECT_EQ(sum, 3) << "the value at capture time";
}

TEST(Graph, OnAGpuIsQueuedAgain) {
  if (device_count("cuda") == 0) GTEST_SKIP() << "no GPU";
  const c10::Device gpu(at::kCUDA, 0);
  const GraphPool pool(gpu);
  const at::Tensor sum = at::zeros({1000}, at::TensorOptions(gpu)), one = at::ones({1000}, at::TensorOptions(gpu));
  const auto add = [&] { at::Tensor(sum).add_(one + one); };  // with a temporary, from the pool
  pool.warm_up(add);
  for (int round = 1; round <= 2; ++round) {  // in the second round the pool has no graph left
    const auto graph = pool.capture(add);
    EXPECT_EQ(sum.sum().item<float>(), 1000.0F * (round == 1 ? 2 : 6)) << "capturing queues nothing";
    for (int i = 0; i < 2; ++i) graph->replay();
    EXPECT_EQ(sum.sum().item<float>(), 1000.0F * (round == 1 ? 6 : 10));
  }
  EXPECT_THROW(pool.capture([] { throw std::runtime_error("no"); }), std::runtime_error);
  const auto graph = pool.capture(add);
  graph->replay();
  EXPECT_EQ(sum.sum().item<float>(), 12000.0F) << "a capture that broke leaves nothing behind";
}

TEST(Graph, ThrowsWhatItsWorkThrows) {
  const GraphPool pool(c10::Device("cpu"));
  EXPECT_THROW(pool.warm_up([] { throw std::runtime_error("no"); }), std::runtime_error);
  EXPECT_THROW(pool.capture([] { throw std::runtime_error("no"); })->replay(), std::runtime_error);
}

}  // namespace
}  // namespace qft::device
