#include "qft/device/device.h"

#include "qft/core/error.h"
#include "qft/device/stream.h"

#include <cstdlib>
#include <string>
#include <vector>

#include <fmt/format.h>
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

TEST(Device, ADeviceThatIsNotThereIsRefused) {
  const int devices = cuda_device_count();
  EXPECT_NE(refusal(fmt::format("cuda:{}", devices)), "accepted");
  if (devices > 0) {
    EXPECT_NE(refusal("cuda:x").find("is not known"), std::string::npos);
    EXPECT_THROW(select_device("cuda", devices, devices + 1), ConfigError);
  } else {
    const auto text = refusal("cuda");
    EXPECT_NE(text.find(built_with_cuda() ? "nvidia-smi" : "-DQFT_CUDA=ON"), std::string::npos) << text;
  }
}

std::vector<const char*> present() {
  return cuda_device_count() > 0 ? std::vector<const char*>{"cpu", "cuda"} : std::vector<const char*>{"cpu"};
}

// On the CPU everything has happened when a call returns; on CUDA these are the real thing.
class Streams : public testing::TestWithParam<const char*> {
 protected:
  c10::Device device_ = select_device(GetParam());
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

INSTANTIATE_TEST_SUITE_P(Devices, Streams, testing::ValuesIn(present()),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace qft::device
