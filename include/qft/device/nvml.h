// State of this node's GPUs from NVIDIA's management library: all GPUs, regardless of CUDA_VISIBLE_DEVICES. The library comes
// with the driver and is loaded on demand; no context is created on any GPU.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace qft::device {

/// A process that holds memory of a GPU.
struct GpuProcess {
  unsigned pid = 0;        ///< the host's number, also in a container
  std::int64_t bytes = 0;  ///< 0 if unknown to the driver
  std::string name;        ///< empty if unknown to the driver
};

/// Current state of one GPU. Unknown values are not set.
struct GpuState {
  int index = 0;                      ///< the driver's index among this node's GPUs
  std::string name;                   ///< "NVIDIA H100 80GB HBM3"
  std::string uuid;                   ///< "GPU-8f2c..."
  std::int64_t memory = 0, used = 0;  ///< bytes; both 0 if the GPU has no separate memory
  std::vector<GpuProcess> processes;
  std::optional<std::int64_t> uncorrected_errors;   ///< uncorrectable ECC errors since the driver was loaded
  std::optional<bool> remap_pending, remap_failed;  ///< memory rows wait for a reset to be replaced; a row could not be replaced
  std::vector<std::string> slowed_by;               ///< reasons for reduced clocks: "heat", "the power brake"
  std::optional<int> clock_mhz, max_clock_mhz;      ///< of its multiprocessors
  std::optional<int> temperature;                   ///< degrees Celsius
  std::optional<double> watts;
  std::optional<int> use_percent;  ///< over the last sampling period
  std::optional<int> pcie_lanes, max_pcie_lanes;
  int links_up = 0, links_down = 0;  ///< NVLink
  /// by index: "" for direct copies to that GPU's memory, and for itself; otherwise why direct copies are impossible
  std::vector<std::string> peers;
};

/// Lower clocks of idle or lightly loaded GPUs are not a fault; GpuState::slowed_by omits them.
struct GpuReport {
  std::string error;              ///< why nothing is known: no driver, or the library's error; empty: the other members are valid
  bool installed = false;         ///< a driver is installed, whether or not it answers
  std::string driver;             ///< "570.86.15"
  std::string cuda;               ///< the newest CUDA version that the driver supports: "12.8"
  std::vector<GpuState> gpus;     ///< GPUs that answer and that this process may use
  std::vector<std::string> lost;  ///< one text for each GPU that does not answer: "GPU 1 of 2 does not answer: GPU is lost"
};

/// Queries the library. QFT_NVML_LIBRARY replaces the driver's libnvidia-ml.so.1 by another file, for tests.
GpuReport gpu_report();

}  // namespace qft::device
