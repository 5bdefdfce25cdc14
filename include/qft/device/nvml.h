// What NVIDIA's management library says of this node's GPUs: all of them, whatever CUDA_VISIBLE_DEVICES shows this process. The
// library comes with the driver and is loaded when it is asked; no context is made on any GPU.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace qft::device {

/// A process that holds memory of a GPU.
struct GpuProcess {
  unsigned pid = 0;        ///< as the host numbers it, also in a container
  std::int64_t bytes = 0;  ///< 0 where the driver does not tell
  std::string name;        ///< empty: the driver does not tell
};

/// One GPU now. What it or its driver does not tell is not set.
struct GpuState {
  int index = 0;                      ///< as the driver numbers this node's GPUs
  std::string name;                   ///< "NVIDIA H100 80GB HBM3"
  std::string uuid;                   ///< "GPU-8f2c..."
  std::int64_t memory = 0, used = 0;  ///< bytes; both 0 where the GPU has no memory of its own
  std::vector<GpuProcess> processes;
  std::optional<std::int64_t> uncorrected_errors;   ///< ECC errors since the driver was loaded that could not be corrected
  std::optional<bool> remap_pending, remap_failed;  ///< rows of its memory wait for a reset to be replaced; could not be
  std::vector<std::string> slowed_by;               ///< why its clocks are held down now: "heat", "the power brake"
  std::optional<int> clock_mhz, most_clock_mhz;     ///< of its multiprocessors
  std::optional<int> temperature;                   ///< degrees Celsius
  std::optional<double> watts;
  std::optional<int> use_percent;  ///< of the last sampling period
  std::optional<int> pcie_lanes, most_pcie_lanes;
  int links_up = 0, links_down = 0;  ///< of NVLink
  std::vector<std::string> peers;    ///< by index: "" where copies to its memory go directly, or it is itself; else why not
};

/// Why GPUs without work or without enough of it have lower clocks is no fault, and not in GpuState::slowed_by.
struct GpuReport {
  std::string error;              ///< why nothing is known: no driver, or what its library says; empty: all below holds
  bool installed = false;         ///< there is a driver to ask, whether it answers or not
  std::string driver;             ///< "570.86.15"
  std::string cuda;               ///< the newest CUDA that the driver runs: "12.8"
  std::vector<GpuState> gpus;     ///< those that answer and that this process may use
  std::vector<std::string> lost;  ///< a text of each that does not answer: "GPU 1 of 2 does not answer: GPU is lost"
};

/// Asks the library. QFT_NVML_LIBRARY names another file than the driver's libnvidia-ml.so.1: a stand-in, in tests.
GpuReport gpu_report();

}  // namespace qft::device
