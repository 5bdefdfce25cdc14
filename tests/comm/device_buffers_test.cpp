// Device communicators, one device for each rank.
#include "qft/comm/bandwidth.h"
#include "qft/comm/device_communicator.h"
#include "qft/comm/exchange.h"
#include "qft/comm/session.h"
#include "qft/core/error.h"
#include "qft/device/device.h"
#include "qft/device/memory.h"
#include "qft/device/stream.h"

#include <string>
#include <vector>

#include "values.h"
#include <gtest/gtest.h>

namespace qft::comm {
namespace {

class DeviceBuffers : public testing::Test {
 protected:
  void SetUp() override {
    if (device_.is_cpu()) GTEST_SKIP() << "for devices";
    comm_ = make_device_communicator(Session::current().world(), device_, "devices");
  }
  c10::Device device_ = qft::test::device_under_test();
  std::unique_ptr<Communicator> comm_;
};

TEST_F(DeviceBuffers, EveryCollectiveGivesTheRightValues) {
  EXPECT_EQ(comm_->backend(), comm_->size() == 1 ? "self" : "nccl");
  EXPECT_EQ(verify_collectives(*comm_, device_), std::vector<std::string>{});
}

TEST_F(DeviceBuffers, TheHostSideServesValuesAndTexts) {
  EXPECT_EQ(all_reduce_value(*comm_, 1), comm_->size());
  EXPECT_EQ(broadcast_string(*comm_, comm_->rank() == 0 ? "text" : ""), "text");
}

TEST_F(DeviceBuffers, WaitOrdersTheComputeStreamBehindTheOperation) {
  std::vector<float> host(1 << 20, 1.0F);
  const auto bytes = host.size() * sizeof(float);
  const device::DeviceBuffer data(bytes, device_);
  device::copy_bytes(data.data(), host.data(), bytes, device_);
  comm_->start_all_reduce(data.data(), host.size(), DType::f32).wait();
  device::copy_bytes(host.data(), data.data(), bytes, device_);
  device::Stream::current(device_).synchronize();
  EXPECT_EQ(host.back(), static_cast<float>(comm_->size()));
}

TEST_F(DeviceBuffers, OperationsRunBesideTheStreamThatComputes) {
  if (comm_->size() == 1) GTEST_SKIP() << "a group of one copies on the current stream";
  const device::DeviceBuffer data(sizeof(float), device_);
  std::vector<Work> works;
  const auto current = device::Stream::current(device_);
  const float zero = 0.0F;
  device::copy_bytes(data.data(), &zero, sizeof zero, device_);
  current.synchronize();
  works.push_back(comm_->start_all_reduce(data.data(), 1, DType::f32));
  EXPECT_TRUE(current.idle());
}

TEST_F(DeviceBuffers, SplitGivesDeviceGroups) {
  const auto half = comm_->split(comm_->rank() % 2, comm_->rank(), "half");
  EXPECT_EQ(verify_collectives(*half, device_), std::vector<std::string>{});
}

}  // namespace
}  // namespace qft::comm
