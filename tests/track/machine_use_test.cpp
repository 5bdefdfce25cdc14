#include "qft/track/machine_use.h"

#include <chrono>
#include <fstream>
#include <thread>

#include "support/temp_files.h"
#include <gtest/gtest.h>

namespace qft::track {
namespace {

namespace fs = std::filesystem;

void write(const fs::path& path, const std::string& text) {
  fs::create_directories(path.parent_path());
  std::ofstream(path) << text;
}

TEST(HostUse, IsWhatLinuxTells) {
  const TempFolder folder;
  const fs::path root = folder.path();
  write(root / "proc/meminfo", "MemTotal:       1000 kB\nMemFree:         100 kB\nMemAvailable:    400 kB\n");
  write(root / "proc/net/dev",
        "Inter-|   Receive                                                |  Transmit\n face |bytes    packets errs drop fifo "
        "frame\n"
        "    lo: 99999 1 0 0 0 0 0 0 99999 1 0 0 0 0 0 0\n  eth0: 100 1 0 0 0 0 0 0 7 1 0 0 0 0 0 0\n"
        "eth1:50 1 0 0 0 0 0 0 3 1 0 0 0 0 0 0\n veth9: 5 1 0 0 0 0 0 0 5 1 0 0 0 0 0 0\n");
  write(root / "sys/class/infiniband/mlx5_0/ports/1/counters/port_rcv_data", "250\n");
  write(root / "sys/class/infiniband/mlx5_0/ports/1/counters/port_xmit_data", "25\n");
  write(root / "proc/diskstats",
        "   8 0 sda 10 0 4 0 20 0 6 0 0 0 0\n   8 1 sda1 10 0 4 0 20 0 6 0 0 0 0\n   7 0 loop0 1 0 9 0 1 0 9 0 0 0 0\n");
  fs::create_directories(root / "sys/block/sda");
  const HostUse use = host_use(root);
  EXPECT_EQ(use.memory, 600 * 1024);
  EXPECT_EQ(use.received, 150 + 1000);
  EXPECT_EQ(use.sent, 10 + 100);
  EXPECT_EQ(use.read, 4 * 512);
  EXPECT_EQ(use.written, 6 * 512);
  const HostUse nothing = host_use(root / "none");
  EXPECT_EQ(nothing.memory, 0);
}

TEST(MachineMonitor, HasMeansAndPeaksSinceItWasTaken) {
  int looks = 0;
  MachineMonitor use(
      [&] {
        ++looks;
        GpuUse gpu{looks % 2 == 0 ? 100.0 : 50.0, 600.0, 60.0 + looks, 5e9};
        return std::vector<GpuUse>{gpu, {{}, {}, {}, 1e9}};
      },
      0.01);
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  const nlohmann::json taken = use.take();
  ASSERT_EQ(taken.at("gpu_use").size(), 1u) << "the second GPU does not report it";
  EXPECT_NEAR(taken["gpu_use"][0].get<double>(), 75.0, 15.0);
  EXPECT_EQ(taken["gpu_power"][0], 600.0);
  EXPECT_GT(taken["gpu_temperature"][0].get<double>(), 61.0);
  EXPECT_EQ(taken["gpu_memory"], nlohmann::json({5e9, 1e9}));
  EXPECT_GT(taken["host_memory"][0].get<double>(), 1e6);
  EXPECT_TRUE(taken.contains("network_received") && taken.contains("disk_written"));
}

TEST(MachineMonitor, IsEmptyWhereNothingWasSeenSince) {
  MachineMonitor use([] { return std::vector<GpuUse>(); }, 1000);
  while (use.take().empty()) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  EXPECT_TRUE(use.take().empty());
}

}  // namespace
}  // namespace qft::track
