// Measures a node's GPUs, host memory, network and disks during a run.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <nlohmann/json.hpp>

namespace qft::track {

/// State of a GPU; unknown values are not set.
struct GpuUse {
  std::optional<double> use_percent, watts, temperature;  ///< degrees Celsius
  double memory = 0;                                      ///< bytes in use, by all processes
};

/// Memory in use on a node, and its counters since boot; all in bytes.
struct HostUse {
  double memory = 0;
  double received = 0, sent = 0;  ///< network interfaces except loopback and bridges, plus InfiniBand ports
  double read = 0, written = 0;   ///< whole disks, without layers such as LVM and RAID
};

/// Reads proc/meminfo, proc/net/dev, proc/diskstats and sys/class/infiniband below `root` ("/", except in tests).
HostUse host_use(const std::filesystem::path& root = "/");

/// Samples the machine every few seconds in a background thread.
class MachineMonitor {
 public:
  using Gpus = std::function<std::vector<GpuUse>()>;
  /// The thread calls `gpus`, which must not throw.
  explicit MachineMonitor(Gpus gpus, double seconds = 5.0);
  ~MachineMonitor();
  MachineMonitor(const MachineMonitor&) = delete;
  MachineMonitor& operator=(const MachineMonitor&) = delete;

  /// Returns values since the last call. Per GPU: mean use in percent, mean power in watts, highest temperature and highest
  /// memory. For the host: memory, and bytes per second of network and disks. The values are lists, as in trainer_log.jsonl; the
  /// object is empty if there was no sample.
  nlohmann::json take();

 private:
  void sample();

  struct Sum {
    double sum = 0, most = 0;
    int n = 0;
    void add(double v);
  };
  struct GpuSums {
    Sum use, watts, temperature, memory;
  };
  Gpus gpus_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::vector<GpuSums> gpu_sums_;
  HostUse first_, last_;  ///< first and last host sample since the last take()
  double first_time_ = 0, last_time_ = 0;
  bool seen_ = false, ends_ = false;
  std::thread thread_;
};

}  // namespace qft::track
