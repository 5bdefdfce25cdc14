// A device kind that qft's sources do not know: found by the name in QFT_DEVICE, and used through its table.
#include "qft/core/error.h"
#include "qft/device/backends.h"
#include "qft/device/device.h"
#include "qft/device/graph.h"

#include <string>
#include <vector>

#include <ATen/ops/ones.h>
#include <gtest/gtest.h>

namespace qft::device {
namespace {

TEST(DeviceByName, IsLoadedAloneAndTaken) {
  const auto entries = load_backends();
  ASSERT_EQ(entries.size(), 2U);
  EXPECT_EQ(entries[0].name, "cuda");
  EXPECT_EQ(entries[0].why, "QFT_DEVICE names eager");
  EXPECT_FALSE(entries[0].broken);
  EXPECT_EQ(entries[1].name, "eager");
  EXPECT_EQ(entries[1].count, 1) << entries[1].why;
  EXPECT_EQ(select_device("auto").str(), "eager:0");
  EXPECT_NE(describe_backends().find("eager: 1 device (eager device, "), std::string::npos) << describe_backends();
}

TEST(DeviceByName, IsAmongTheWordsForDevices) {
  EXPECT_EQ(kind_names(), (std::vector<std::string>{"cpu", "cuda", "eager"}));
  EXPECT_EQ(device_words(), "auto, cpu, cuda, eager, cuda:N or eager:N");
  EXPECT_EQ(parse_device("eager:0").index, 0);
  EXPECT_THROW(parse_device("npu"), ConfigError);
  EXPECT_THROW(kind_for(parse_device("eager:1")), ConfigError);
  EXPECT_THROW(kind_for(parse_device("cuda")), ConfigError);
}

TEST(DeviceByName, WhatItCannotRecordIsCalledAgain) {
  const c10::Device device = select_device("eager");
  EXPECT_FALSE(records_graphs(device));
  EXPECT_FALSE(records_graphs(c10::kCPU));
  at::Tensor sum = at::ones({3}, device);
  const GraphPool pool(device);
  const auto graph = pool.capture([&] { sum.add_(1); });
  EXPECT_EQ(sum.sum().item<float>(), 3) << "a capture must not do the work";
  graph->replay();
  graph->replay();
  EXPECT_EQ(sum.sum().item<float>(), 9);
}

}  // namespace
}  // namespace qft::device
