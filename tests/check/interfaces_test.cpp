// Tests how a node's network is read, and which interfaces MPI and NCCL use.
#include "check/interfaces.h"

#include <filesystem>
#include <fstream>
#include <unistd.h>

#include <gtest/gtest.h>

namespace qft::check {
namespace {

namespace fs = std::filesystem;

const std::vector<Interface> kAll = {{"lo", true, true, 65536, 0, "127.0.0.1", 8},
                                     {"eth0", true, false, 1500, 1000, "192.168.3.7", 24},
                                     {"ib0", true, false, 4092, 200'000, "10.10.1.7", 16},
                                     {"docker0", true, false, 1500, 0, "172.17.0.1", 16},
                                     {"eth1", false, false, 1500, 0, "", 0}};

std::vector<std::string> names(const std::vector<Interface>& interfaces) {
  std::vector<std::string> all;
  for (const Interface& i : interfaces) all.push_back(i.name);
  return all;
}
using Names = std::vector<std::string>;

TEST(Interfaces, ThoseThatMpiMayTake) {
  EXPECT_EQ(names(candidates(kAll, "", "lo,sppp")), (Names{"eth0", "ib0", "docker0"}));
  EXPECT_EQ(names(candidates(kAll, "", "127.0.0.1/8,docker0")), (Names{"eth0", "ib0"}));
  EXPECT_EQ(names(candidates(kAll, "10.10.0.0/16", "lo")), (Names{"ib0"}));
  EXPECT_EQ(names(candidates(kAll, "lo", "")), (Names{"lo"}));
  EXPECT_EQ(names(candidates(kAll, "eth1,eth9", "")), Names{});
  EXPECT_EQ(kAll[2].network(), "10.10.0.0/16");
}

TEST(Interfaces, ThoseThatNcclMayTake) {
  EXPECT_EQ(names(nccl_candidates(kAll, "")), (Names{"eth0", "ib0"}));
  EXPECT_EQ(names(nccl_candidates(kAll, "e")), (Names{"eth0"}));
  EXPECT_EQ(names(nccl_candidates(kAll, "=eth")), Names{});
  EXPECT_EQ(names(nccl_candidates(kAll, "=eth0,ib0")), (Names{"eth0", "ib0"}));
  EXPECT_EQ(names(nccl_candidates(kAll, "^docker,lo,ib")), (Names{"eth0"}));
  EXPECT_EQ(names(nccl_candidates(kAll, "^=lo,docker0,eth0")), (Names{"ib0"}));
}

TEST(Interfaces, TheLoopbackOfThisMachine) {
  const auto all = interfaces();
  const auto lo = std::find_if(all.begin(), all.end(), [](const Interface& i) { return i.loopback; });
  ASSERT_NE(lo, all.end());
  EXPECT_GT(lo->mtu, 1000);
  EXPECT_EQ(interface_of(to_json(*lo)).name, lo->name);
  EXPECT_GE(sent_bytes("/").count(lo->name), 1U);
}

TEST(Interfaces, PortsForRdma) {
  const fs::path root = fs::temp_directory_path() / ("qft-check-" + std::to_string(getpid()));
  const fs::path port = root / "sys/class/infiniband/mlx5_0/ports/1";
  fs::create_directories(port / "counters");
  std::ofstream(port / "state") << "4: ACTIVE\n";
  std::ofstream(port / "rate") << "200 Gb/sec (4X HDR)\n";
  std::ofstream(port / "link_layer") << "InfiniBand\n";
  std::ofstream(port / "counters/port_xmit_data") << "250\n";
  const auto ports = rdma_ports(root);
  fs::remove_all(root);
  ASSERT_EQ(ports.size(), 1U);
  EXPECT_EQ(ports[0].name, "mlx5_0:1");
  EXPECT_EQ(ports[0].state, "ACTIVE");
  EXPECT_EQ(ports[0].gigabits, 200);
  EXPECT_EQ(ports[0].sent, 1000);
  EXPECT_TRUE(rdma_ports(root).empty());
}

}  // namespace
}  // namespace qft::check
