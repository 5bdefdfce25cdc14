#include "qft/track/machine_use.h"

#include "qft/core/clock.h"
#include "qft/core/thread.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <initializer_list>
#include <sstream>
#include <string_view>
#include <utility>

namespace qft::track {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

bool starts_with_any(std::string_view name, std::initializer_list<std::string_view> starts) {
  return std::ranges::any_of(starts, [&](std::string_view s) { return name.starts_with(s); });
}

double memory_in_use(const fs::path& meminfo) {
  std::ifstream in(meminfo);
  double total = 0, available = 0;
  for (std::string line; std::getline(in, line);) {
    std::istringstream words(line);
    std::string key;
    double kilobytes = 0;
    words >> key >> kilobytes;
    if (key == "MemTotal:") total = kilobytes;
    if (key == "MemAvailable:") available = kilobytes;
  }
  return (total - available) * 1024;
}

/// Parses lines such as "  eth0: bytes packets errs drop fifo frame compressed multicast bytes ...".
void add_network(const fs::path& dev, HostUse& use) {
  std::ifstream in(dev);
  for (std::string line; std::getline(in, line);) {
    const std::size_t colon = line.find(':');
    if (colon == line.npos) continue;
    const std::string name = line.substr(line.find_first_not_of(' '), colon - line.find_first_not_of(' '));
    if (starts_with_any(name, {"lo", "veth", "docker", "br-", "virbr", "tap", "bond"})) continue;
    std::istringstream numbers(line.substr(colon + 1));
    double received = 0, sent = 0, skipped = 0;
    numbers >> received;
    for (int i = 0; i < 7; ++i) numbers >> skipped;
    numbers >> sent;
    use.received += received;
    use.sent += sent;
  }
}

/// RDMA bypasses the interfaces; InfiniBand ports count in units of four bytes.
void add_infiniband(const fs::path& cards, HostUse& use) {
  const auto counter = [](const fs::path& file) {
    double value = 0;
    std::ifstream(file) >> value;
    return 4 * value;
  };
  std::error_code code;
  for (fs::directory_iterator card(cards, code), end; !code && card != end; card.increment(code)) {
    std::error_code none;
    for (fs::directory_iterator port(card->path() / "ports", none), last; !none && port != last; port.increment(none)) {
      use.received += counter(port->path() / "counters/port_rcv_data");
      use.sent += counter(port->path() / "counters/port_xmit_data");
    }
  }
}

/// Adds whole disks: "8 0 sda reads merged sectors ms writes merged sectors ..."; a sector here is always 512 bytes.
void add_disks(const fs::path& diskstats, const fs::path& block, HostUse& use) {
  std::ifstream in(diskstats);
  for (std::string line; std::getline(in, line);) {
    std::istringstream words(line);
    std::string name;
    double number = 0, read = 0, written = 0;
    words >> number >> number >> name >> number >> number >> read >> number >> number >> number >> written;
    if (starts_with_any(name, {"loop", "ram", "dm-", "md", "zram", "sr"}) || !fs::exists(block / name)) continue;
    use.read += 512 * read;
    use.written += 512 * written;
  }
}

}  // namespace

HostUse host_use(const fs::path& root) {
  HostUse use;
  use.memory = memory_in_use(root / "proc/meminfo");
  add_network(root / "proc/net/dev", use);
  add_infiniband(root / "sys/class/infiniband", use);
  add_disks(root / "proc/diskstats", root / "sys/block", use);
  return use;
}

void MachineMonitor::Sum::add(double v) {
  sum += v;
  most = n == 0 ? v : std::max(most, v);
  ++n;
}

MachineMonitor::MachineMonitor(Gpus gpus, double seconds) : gpus_(std::move(gpus)) {
  thread_ = start_thread([this, seconds] {
    std::unique_lock lock(mutex_);
    while (!ends_) {
      lock.unlock();
      sample();
      lock.lock();
      wake_.wait_for(lock, std::chrono::duration<double>(seconds), [&] { return ends_; });
    }
  });
}

MachineMonitor::~MachineMonitor() {
  {
    const std::lock_guard lock(mutex_);
    ends_ = true;
  }
  wake_.notify_all();
  thread_.join();
}

void MachineMonitor::sample() {
  const auto gpus = gpus_();
  const HostUse host = host_use();
  const std::lock_guard lock(mutex_);
  gpu_sums_.resize(std::max(gpu_sums_.size(), gpus.size()));
  for (std::size_t i = 0; i < gpus.size(); ++i) {
    GpuSums& s = gpu_sums_[i];
    if (gpus[i].use_percent) s.use.add(*gpus[i].use_percent);
    if (gpus[i].watts) s.watts.add(*gpus[i].watts);
    if (gpus[i].temperature) s.temperature.add(*gpus[i].temperature);
    s.memory.add(gpus[i].memory);
  }
  if (first_time_ == 0) first_ = host, first_time_ = steady_seconds();
  last_ = host;
  last_time_ = steady_seconds();
  seen_ = true;
}

json MachineMonitor::take() {
  const std::lock_guard lock(mutex_);
  json taken = json::object();
  if (!std::exchange(seen_, false)) return taken;
  const auto of_gpus = [&](const char* key, Sum GpuSums::* member, bool mean) {
    json list = json::array();
    for (const GpuSums& s : gpu_sums_)
      if (const Sum& sum = s.*member; sum.n > 0) list.push_back(std::round(10 * (mean ? sum.sum / sum.n : sum.most)) / 10);
    if (!list.empty()) taken[key] = list;
  };
  of_gpus("gpu_use", &GpuSums::use, true);
  of_gpus("gpu_power", &GpuSums::watts, true);
  of_gpus("gpu_temperature", &GpuSums::temperature, false);
  of_gpus("gpu_memory", &GpuSums::memory, false);
  gpu_sums_.clear();
  taken["host_memory"] = {std::round(last_.memory)};
  const double seconds = last_time_ - first_time_;
  const auto rate = [&](const char* key, double HostUse::* counter) {
    if (seconds > 0) taken[key] = {std::round(std::max(0.0, last_.*counter - first_.*counter) / seconds)};
  };
  rate("network_received", &HostUse::received);
  rate("network_sent", &HostUse::sent);
  rate("disk_read", &HostUse::read);
  rate("disk_written", &HostUse::written);
  first_ = last_;
  first_time_ = last_time_;
  return taken;
}

}  // namespace qft::track
