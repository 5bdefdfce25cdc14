// What a run takes of its node beside its own memory: GPUs, host memory, network, disks.
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

/// A GPU now; what is not known is not set.
struct GpuUse {
  std::optional<double> use_percent, watts, temperature;  ///< degrees Celsius
  double memory = 0;                                      ///< bytes in use, by all processes
};

/// Counters of a node since its start, and its memory in use; bytes.
struct HostUse {
  double memory = 0;
  double received = 0, sent = 0;  ///< network interfaces but loopback and bridges, and InfiniBand's ports
  double read = 0, written = 0;   ///< disks, without what is laid over them
};

/// As Linux tells it below `root` (for tests; "/" else): proc/meminfo, proc/net/dev, proc/diskstats, sys/class/infiniband.
HostUse host_use(const std::filesystem::path& root = "/");

/// Looks every few seconds, by a thread of its own.
class MachineUse {
 public:
  using Gpus = std::function<std::vector<GpuUse>()>;
  /// `gpus` is called by the thread; it may throw nothing.
  explicit MachineUse(Gpus gpus, double seconds = 5.0);
  ~MachineUse();
  MachineUse(const MachineUse&) = delete;
  MachineUse& operator=(const MachineUse&) = delete;

  /// Since the last call: of each GPU the mean use in percent, the mean power in watts, the highest temperature and memory; of
  /// the host memory, and bytes a second of network and disks. Lists, as trainer_log.jsonl has them; empty while nothing was
  /// seen.
  nlohmann::json take();

 private:
  void look();

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
  HostUse first_, last_;  ///< of the host's looks since the last take()
  double first_time_ = 0, last_time_ = 0;
  bool seen_ = false, ends_ = false;
  std::thread thread_;
};

}  // namespace qft::track
