// Errors on all ranks when a device operation fails, stalls or gets wrong arguments. The simulated device is told to do so.
#include "qft/comm/device_communicator.h"
#include "qft/comm/session.h"
#include "qft/core/error.h"
#include "qft/device/memory.h"
#include "qft/device/stream.h"

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "naps.h"
#include "sim/collectives.h"
#include "sim/sim.h"
#include "values.h"
#include <gtest/gtest.h>

namespace qft::comm {
namespace {

using namespace std::chrono_literals;
using sim::Fault;
using test::Values;

class DeviceFault : public testing::Test {
 protected:
  void SetUp() override { world().barrier(); }
  void TearDown() override {
    sim::clear_faults();
    sim::limit_waits(0ms);
  }
  static Communicator& world() { return Session::current().world(); }
  static int rank() { return world().rank(); }

  /// Returns the error with which `work` ends, within seconds, on a separate communicator.
  static std::string error_of(const std::function<void(Communicator&, Values&)>& work) {
    const auto begin = std::chrono::steady_clock::now();
    std::string error = "no error";
    try {
      Values data(DType::f32, 1000);
      for (std::size_t i = 0; i < data.size(); ++i) data.set(i, 1);
      const auto comm = make_device_communicator(world(), qft::test::device_under_test(), "devices");
      work(*comm, data);
    } catch (const Error& e) {
      error = e.what();
    }
    EXPECT_LT(std::chrono::steady_clock::now() - begin, 10s) << error;
    return error;
  }
  static void reduce(Communicator& comm, Values& data) {
    comm.start_all_reduce(data.data(), data.size(), DType::f32).wait_host();
  }
  static void expect_words(const std::string& text, const std::vector<std::string>& words) {
    for (const std::string& word : words) EXPECT_NE(text.find(word), std::string::npos) << text << "\nlacks: " << word;
  }
};

TEST_F(DeviceFault, NoneWithoutBeingTold) {
  EXPECT_EQ(error_of([](Communicator& comm, Values& data) {
              reduce(comm, data);
              EXPECT_EQ(data.get(999), comm.size());
            }),
            "no error");
}

// The library reports each launch as in progress before it reports that it is done.
TEST_F(DeviceFault, ALaunchThatIsDoneSoonCostsNoNap) {
  constexpr int kLaunches = 30;
  long taken = 0;
  EXPECT_EQ(error_of([&](Communicator& comm, Values& data) {
              reduce(comm, data);
              const long before = test::naps;
              std::vector<Work> works;
              for (int i = 0; i < kLaunches; ++i)
                works.push_back(comm.start_all_reduce(data.data(), data.size(), DType::i32, ReduceOp::max));
              taken = test::naps - before;
              for (Work& work : works) work.wait_host();
            }),
            "no error");
  EXPECT_LT(taken, kLaunches / 3);  // a busy machine may delay one by a millisecond
}

// Without an abort, freeing the buffers would wait for the device, and the device for the other ranks.
TEST_F(DeviceFault, AnErrorWhileADeviceWaitsForOthersEndsTheWait) {
  const std::string error = error_of([](Communicator& comm, Values&) {
    if (comm.rank() == comm.size() - 1) {
      std::this_thread::sleep_for(6s);  // longer than the other ranks wait
      fail("not here");
    }
    const device::DeviceBuffer data(4000, qft::test::device_under_test());
    const Work work = comm.start_all_reduce(data.data(), 1000, DType::f32);
    fail("while device data moves");
  });
  EXPECT_EQ(error, rank() == world().size() - 1 ? "not here" : "while device data moves");
  device::Stream::current(qft::test::device_under_test()).synchronize();
  EXPECT_EQ(sim::errors(), std::vector<std::string>{});
}

TEST_F(DeviceFault, ACallThatFailsIsNamed) {
  sim::inject(Fault::call, 2);
  const std::string error = error_of([](Communicator& comm, Values& data) {
    reduce(comm, data);
    reduce(comm, data);
  });
  expect_words(error, {"all_reduce in group devices failed: all_reduce(sum, F32, 1000) of rank ", "told to fail"});
}

TEST_F(DeviceFault, AStalledRankIsNamedByThoseThatWait) {
  sim::inject(Fault::stall, 2, 1);
  sim::limit_waits(1s);
  const std::string error = error_of([](Communicator& comm, Values& data) {
    reduce(comm, data);
    reduce(comm, data);
  });
  // All ranks learn it from the first that gives up, including the rank that stalls.
  expect_words(error, {"a started operation in group devices failed: all_reduce(sum, F32, 1000) of rank ",
                       "waits for rank 1 (1 launches begun"});
}

TEST_F(DeviceFault, AnErrorAfterAnOperationEndsTheWaitOfAllRanks) {
  sim::inject(Fault::error, 1, 0);
  const std::string error = error_of([](Communicator& comm, Values& data) {
    reduce(comm, data);
    reduce(comm, data);
  });
  if (rank() == 0) {
    expect_words(error, {"told to fail after all_reduce(sum, F32, 1000)"});
  } else {
    expect_words(error, {"all_reduce(sum, F32, 1000) of rank ",
                         "waits for rank 0, which has aborted the group: told to fail after all_reduce(sum, F32, 1000)"});
  }
}

TEST_F(DeviceFault, CallsThatDifferAreNamedOnAllRanks) {
  const std::string error = error_of([](Communicator& comm, Values& data) {
    comm.set_checked(false);
    if (comm.rank() == 1) {
      comm.start_broadcast(data.data(), 1000, DType::f32, 0).wait_host();
    } else {
      reduce(comm, data);
    }
  });
  expect_words(error, {"the ranks' calls do not match", "all_reduce(sum, F32, 1000)", "broadcast(4000 bytes, root 0)"});
}

TEST_F(DeviceFault, MessagesInARingAreNamed) {
  const std::string error = error_of([](Communicator& comm, Values& data) {
    const int right = (comm.rank() + 1) % comm.size();
    comm.start_send(data.data(), 1000, DType::f32, right).wait_host();
  });
  expect_words(error, {"wait for each other without end", "rank 0 in send(4000 bytes, rank 1)"});
}

TEST_F(DeviceFault, HostMemoryIsRefused) {
  const std::string error = error_of([](Communicator& comm, Values&) {
    std::vector<float> host(1000);
    comm.start_all_reduce(host.data(), host.size(), DType::f32).wait_host();
  });
  expect_words(error, {"all_reduce(sum, F32, 1000) of rank ", "is memory of the host"});
}

}  // namespace
}  // namespace qft::comm
