#include "qft/device/device.h"

#include "qft/core/error.h"
#include "qft/device/stream.h"
#include "qft/device/upload.h"
#include "qft/device/wait_check.h"

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <numeric>
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
  EXPECT_TRUE(select_device("cpu").is_cpu());
  EXPECT_FALSE(describe(c10::kCPU).empty());
  EXPECT_EQ(library_version().find("LibTorch "), 0U);
}

TEST(Device, AutoTakesCudaWhereThereIsOne) {
  EXPECT_EQ(!select_device("auto").is_cpu(), device_count("cuda") > 0);
}

TEST(Device, UnknownWordsAreRefused) {
  EXPECT_EQ(refusal("tpu"), "device 'tpu' is not known: use auto, cpu, cuda or cuda:N");
  EXPECT_NE(refusal("cuda0"), "accepted");
}

TEST(Device, ADeviceThatIsNotThereIsRefused) {
  const int devices = device_count("cuda");
  EXPECT_NE(refusal(fmt::format("cuda:{}", devices)), "accepted");
  if (devices > 0) {
    EXPECT_NE(refusal("cuda:x").find("is not known"), std::string::npos);
  } else {
    const auto text = refusal("cuda");
    EXPECT_NE(text.find("cannot be used here: "), std::string::npos) << text;
    EXPECT_NE(describe_backends().find("cuda: not used: "), std::string::npos);
  }
}

std::vector<const char*> present() {
  return device_count("cuda") > 0 ? std::vector<const char*>{"cpu", "cuda"} : std::vector<const char*>{"cpu"};
}

// On the CPU everything has happened when a call returns; CUDA has real streams.
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

TEST_P(Streams, UploadedValuesAreAtOnceTheirOwn) {
  std::vector<std::int32_t> narrow(1000);
  std::iota(narrow.begin(), narrow.end(), -5);
  std::vector<std::int64_t> wide = {std::int64_t{7} << 40, -1};
  const at::Tensor a = upload(narrow, device_), b = upload(wide, device_), none = upload(std::vector<std::int32_t>{}, device_);
  const auto expected = narrow;
  std::ranges::fill(narrow, 0);
  wide.clear();
  EXPECT_EQ(a.device().type(), device_.type());
  const at::Tensor host = a.cpu(), host_wide = b.cpu();
  EXPECT_TRUE(std::equal(expected.begin(), expected.end(), host.const_data_ptr<std::int32_t>()));
  EXPECT_EQ(host_wide.const_data_ptr<std::int64_t>()[0], std::int64_t{7} << 40);
  EXPECT_EQ(none.numel(), 0);
}

TEST_P(Streams, WaitingForADeviceIsRefusedWhereAsked) {
  const auto stream = Stream::current(device_);
  const at::Tensor value = upload(std::vector<std::int64_t>{3}, device_);
  Event event(device_);
  event.record(stream);
  const std::vector<std::function<void()>> waits = {[&] { value.item(); }, [&] { stream.synchronize(); },
                                                    [&] { event.synchronize(); }};
  const auto where = [] { return std::string("this test"); };
  for (const auto& wait : waits) {
    std::string refusal;
    try {
      without_waits(device_, true, where, wait);
    } catch (const Error& e) {
      refusal = e.what();
    }
    EXPECT_EQ(refusal.find("in this test") != std::string::npos, !device_.is_cpu()) << refusal;
    EXPECT_NO_THROW(without_waits(device_, false, where, wait));
    EXPECT_NO_THROW(wait());
  }
  EXPECT_NO_THROW(without_waits(device_, true, where, [&] { upload(std::vector<std::int64_t>{3}, device_); }));
  EXPECT_THROW(without_waits(device_, true, where, [] { fail("another error"); }), Error);
}

INSTANTIATE_TEST_SUITE_P(Devices, Streams, testing::ValuesIn(present()),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace qft::device
