#include "qft/comm/session.h"

#include "qft/comm/device_communicator.h"
#include "qft/comm/exchange.h"
#include "qft/core/error.h"
#include "qft/device/device.h"

#include <array>
#include <string>

#include <gtest/gtest.h>

namespace qft::comm {
namespace {

TEST(Session, KnowsItsPlace) {
  auto& session = Session::current();
  EXPECT_EQ(session.world().rank(), session.rank());
  EXPECT_EQ(session.world().size(), session.size());
  EXPECT_EQ(session.node_group().size(), session.local_size());
  EXPECT_GE(session.local_rank(), 0);
  EXPECT_LT(session.local_rank(), session.local_size());
  EXPECT_LT(session.node(), session.node_count());
  EXPECT_GE(session.core_sharers(), 1);
  EXPECT_LE(session.core_sharers(), session.local_size());
  EXPECT_FALSE(session.hostname().empty());
  EXPECT_FALSE(Session::library_version().empty());
  EXPECT_EQ(all_reduce_value(session.world(), session.local_rank() == 0 ? 1 : 0), session.node_count());
}

TEST(Session, IsTheOnlyOne) {
  int argc = 0;
  char** argv = nullptr;
  EXPECT_TRUE(Session::exists());
  EXPECT_THROW(Session(argc, argv), Error);
  EXPECT_TRUE(Session::exists());
}

TEST(Session, DeviceCommunicatorOfTheCpuIsAHostOne) {
  auto comm = make_device_communicator(Session::current().world(), c10::kCPU, "device");
  EXPECT_EQ(comm->size(), Session::current().size());
  EXPECT_EQ(&comm->host(), comm.get());
  EXPECT_EQ(all_reduce_value(*comm, 1), comm->size());
}

TEST(Session, ADeviceWithoutALibraryOfCollectivesIsRefused) {
  if (device::device_count("cuda") > 0) GTEST_SKIP() << "there is NCCL";
  auto& world = Session::current().world();
  if (world.size() == 1) GTEST_SKIP() << "one rank needs none";
  EXPECT_THROW(make_device_communicator(world, c10::Device(c10::kCUDA, 0), "device"), Error);
}

TEST(Session, RanksChooseTheirDevicesTogether) {
  auto& session = Session::current();
  EXPECT_TRUE(choose_device(session, "cpu").is_cpu());
  EXPECT_EQ(session.sharers_of(c10::kCPU), session.local_size());
  EXPECT_THROW(choose_device(session, "tpu"), ConfigError);
  if (device::device_count("cuda") == 0) {
    EXPECT_THROW(choose_device(session, "cuda"), ConfigError);
  }
}

TEST(FormatRanks, JoinsRuns) {
  EXPECT_EQ(format_ranks(std::array{0, 1, 2, 5}), "0-2,5");
  EXPECT_EQ(format_ranks(std::array{3}), "3");
  EXPECT_EQ(format_ranks({}), "");
}

}  // namespace
}  // namespace qft::comm
