// Tests reading the driver's library, with a fake library.
#include "qft/device/nvml.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <unistd.h>

#include <gtest/gtest.h>

namespace qft::device {
namespace {

GpuReport report_of(const std::string& text) {
  const auto file = std::filesystem::temp_directory_path() / ("qft-nvml-" + std::to_string(getpid()));
  std::ofstream(file) << text;
  setenv("QFT_NVML_LIBRARY", QFT_TEST_NVML, 1);
  setenv("QFT_NVML_STAND_IN", file.c_str(), 1);
  GpuReport report = gpu_report();
  std::filesystem::remove(file);
  return report;
}

TEST(Nvml, TellsOfEachGpu) {
  const auto report = report_of(
      "driver 550.1\ngpus 2\n1 process 42 1000000\n0 errors 5\n0 failed\n1 slowed 104\n0 lanes 4\n1 links 1 3\n0 peer 4\n");
  EXPECT_EQ(report.error, "");
  EXPECT_EQ(report.driver, "550.1");
  EXPECT_EQ(report.cuda, "12.8");
  ASSERT_EQ(report.gpus.size(), 2U);
  const GpuState &a = report.gpus[0], &b = report.gpus[1];
  EXPECT_EQ(a.uncorrected_errors, 5);
  EXPECT_EQ(a.remap_failed, true);
  EXPECT_EQ(a.remap_pending, false);
  EXPECT_EQ(a.pcie_lanes, 4);
  EXPECT_EQ(a.max_pcie_lanes, 16);
  EXPECT_TRUE(a.slowed_by.empty()) << "idle is not a fault";
  EXPECT_EQ(a.peers, (std::vector<std::string>{"", "it is disabled in the driver"}));
  ASSERT_EQ(b.processes.size(), 1U);
  EXPECT_EQ(b.processes[0].pid, 42U);
  EXPECT_EQ(b.processes[0].bytes, 1'000'000);
  EXPECT_EQ(b.processes[0].name, "python3");
  EXPECT_EQ(b.slowed_by.size(), 3U);
  EXPECT_EQ(b.links_up, 1);
  EXPECT_EQ(b.links_down, 3);
  EXPECT_DOUBLE_EQ(b.watts.value(), 123.456);
  EXPECT_EQ(b.use_percent, 17);
}

TEST(Nvml, ManyProcesses) {
  std::string text = "gpus 1\n";
  for (int pid = 1; pid <= 20; ++pid) text += "0 process " + std::to_string(pid) + " 1\n";
  EXPECT_EQ(report_of(text).gpus.at(0).processes.size(), 20U);
}

TEST(Nvml, AGpuThatIsLostOrADriverThatIsNotThere) {
  const auto lost = report_of("gpus 3\nlost 1\n2 peer 4\n");
  EXPECT_EQ(lost.error, "");
  EXPECT_EQ(lost.lost, std::vector<std::string>{"GPU 1 of 3 does not answer: GPU is lost"});
  ASSERT_EQ(lost.gpus.size(), 2U);
  EXPECT_EQ(lost.gpus[1].index, 2);
  EXPECT_EQ(lost.gpus[0].peers, (std::vector<std::string>{"", "", "it is disabled in the driver"}));
  EXPECT_TRUE(report_of("").gpus.empty());
  const auto broken = report_of("gpus 2\nbroken\n");
  EXPECT_EQ(broken.error, "NVIDIA's driver does not answer: Driver/library version mismatch");
  EXPECT_TRUE(broken.installed);
  setenv("QFT_NVML_LIBRARY", "/no/such/library.so", 1);
  EXPECT_EQ(gpu_report().error, "QFT_NVML_LIBRARY '/no/such/library.so' does not load");
  EXPECT_FALSE(gpu_report().installed);
}

TEST(Nvml, AnotherJobsGpuIsPassedOver) {
  const auto report = report_of("gpus 2\nhidden 0\n");
  EXPECT_EQ(report.error, "");
  EXPECT_TRUE(report.lost.empty());
  ASSERT_EQ(report.gpus.size(), 1U);
  EXPECT_EQ(report.gpus[0].index, 1);
}

}  // namespace
}  // namespace qft::device
