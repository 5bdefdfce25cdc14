#include "qft/device/device.h"

#include "qft/core/error.h"
#include "qft/device/stream.h"

#include <cstdlib>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace qft::device {
namespace {

std::string refusal(std::string_view wish) {
  try {
    select_device(wish);
  } catch (const ConfigError& e) {
    return e.what();
  }
  return "accepted";
}

TEST(Device, TheCpuIsAlwaysThere) {
  EXPECT_TRUE(select_device("cpu", 3, 4).is_cpu());
  EXPECT_FALSE(describe(c10::kCPU).empty());
  EXPECT_EQ(library_version().find("LibTorch "), 0U);
}

TEST(Device, AutoTakesCudaWhereThereIsOne) {
  EXPECT_EQ(select_device("auto").is_cuda(), cuda_device_count() > 0);
}

TEST(Device, UnknownWordsAreRefused) {
  EXPECT_EQ(refusal("tpu"), "device 'tpu' is not known: use auto, cpu, cuda or cuda:N");
  EXPECT_NE(refusal("cuda0"), "accepted");
}

TEST(Device, CudaIsRefusedWhereItIsMissing) {
  if (cuda_device_count() > 0) GTEST_SKIP() << "this machine has CUDA";
  const auto text = refusal("cuda");
  EXPECT_NE(text.find(built_with_cuda() ? "nvidia-smi" : "-DQFT_CUDA=ON"), std::string::npos) << text;
  EXPECT_NE(refusal("cuda:1"), "accepted");
}

TEST(Device, ARankBeyondTheDevicesIsRefused) {
  const int devices = cuda_device_count();
  if (devices == 0) GTEST_SKIP() << "needs CUDA";
  EXPECT_THROW(select_device("cuda", devices, devices + 1), ConfigError);
  EXPECT_NE(refusal("cuda:99").find("there are"), std::string::npos);
  EXPECT_NE(refusal("cuda:x").find("is not known"), std::string::npos);
}

// On the CPU everything has happened when a call returns; on CUDA these are the real thing.
class Streams : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (std::string(GetParam()) == "cuda" && cuda_device_count() == 0) GTEST_SKIP() << "needs CUDA";
    device_ = select_device(GetParam());
  }
  c10::Device device_ = c10::kCPU;
};

TEST_P(Streams, EventsOrderAndTime) {
  const auto compute = Stream::current(device_);
  const auto other = Stream::make(device_, true);
  Event before(device_, true);
  EXPECT_TRUE(before.query());
  before.record(compute);
  other.wait(before);
  Event after(device_, true);
  after.record(other);
  after.synchronize();
  EXPECT_TRUE(after.query());
  EXPECT_GE(after.milliseconds_since(before), 0);
  other.synchronize();
  EXPECT_TRUE(other.idle());
  EXPECT_EQ(compute.native() == nullptr, device_.is_cpu() || compute.torch().id() == 0);
}

TEST_P(Streams, TheGuardSwitchesAndRestores) {
  const auto before = Stream::current(device_);
  const auto other = Stream::make(device_);
  {
    const StreamGuard guard(other);
    EXPECT_EQ(Stream::current(device_), other);
  }
  EXPECT_EQ(Stream::current(device_), before);
}

INSTANTIATE_TEST_SUITE_P(Devices, Streams, testing::Values("cpu", "cuda"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace qft::device
