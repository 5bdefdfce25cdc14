#include "qft/device/nvml.h"

#include <array>
#include <cstdlib>
#include <dlfcn.h>
#include <filesystem>
#include <fstream>

#include <fmt/format.h>

namespace qft::device {
namespace {

// The part of the library's interface that we use. Its ABI is stable, but its header is not on every machine that builds qft.
using Device = void*;
using Result = int;
constexpr Result kSuccess = 0, kNoPermission = 4, kTooSmall = 7, kNotLoaded = 9;

struct MemoryInfo {
  unsigned long long total, free, used;
};
struct ProcessInfo {
  unsigned pid;
  unsigned long long bytes;
  unsigned gpu_instance, compute_instance;
};
constexpr unsigned kUncorrected = 1, kSinceLoaded = 0, kMultiprocessors = 1, kCelsius = 0, kRead = 0;
constexpr unsigned kMostLinks = 18;
constexpr unsigned long long kUntold = ~0ULL;
struct Utilization {
  unsigned gpu, memory;
};

/// The functions that we call, by the library's names, newer names first. Null if an old driver lacks one.
struct Table {
  Result (*init)() = nullptr;
  Result (*shutdown)() = nullptr;
  const char* (*error)(Result) = nullptr;
  Result (*driver)(char*, unsigned) = nullptr;
  Result (*cuda)(int*) = nullptr;
  Result (*count)(unsigned*) = nullptr;
  Result (*device)(unsigned, Device*) = nullptr;
  Result (*name)(Device, char*, unsigned) = nullptr;
  Result (*uuid)(Device, char*, unsigned) = nullptr;
  Result (*memory)(Device, MemoryInfo*) = nullptr;
  Result (*processes)(Device, unsigned*, ProcessInfo*) = nullptr;
  Result (*process_name)(unsigned, char*, unsigned) = nullptr;
  Result (*errors)(Device, unsigned, unsigned, unsigned long long*) = nullptr;
  Result (*rows)(Device, unsigned*, unsigned*, unsigned*, unsigned*) = nullptr;
  Result (*slowed)(Device, unsigned long long*) = nullptr;
  Result (*clock)(Device, unsigned, unsigned*) = nullptr;
  Result (*most_clock)(Device, unsigned, unsigned*) = nullptr;
  Result (*temperature)(Device, unsigned, unsigned*) = nullptr;
  Result (*power)(Device, unsigned*) = nullptr;
  Result (*utilization)(Device, Utilization*) = nullptr;
  Result (*lanes)(Device, unsigned*) = nullptr;
  Result (*most_lanes)(Device, unsigned*) = nullptr;
  Result (*link)(Device, unsigned, unsigned*) = nullptr;
  Result (*peer)(Device, Device, unsigned, unsigned*) = nullptr;

  template <class Visit>
  void visit(Visit&& visit) {
    visit("nvmlInit_v2", init);
    visit("nvmlShutdown", shutdown);
    visit("nvmlErrorString", error);
    visit("nvmlSystemGetDriverVersion", driver);
    visit("nvmlSystemGetCudaDriverVersion", cuda);
    visit("nvmlDeviceGetCount_v2", count);
    visit("nvmlDeviceGetHandleByIndex_v2", device);
    visit("nvmlDeviceGetName", name);
    visit("nvmlDeviceGetUUID", uuid);
    visit("nvmlDeviceGetMemoryInfo", memory);
    visit("nvmlDeviceGetComputeRunningProcesses_v3", processes);
    visit("nvmlDeviceGetComputeRunningProcesses_v2", processes);  // drivers before 510: the same layout
    visit("nvmlSystemGetProcessName", process_name);
    visit("nvmlDeviceGetTotalEccErrors", errors);
    visit("nvmlDeviceGetRemappedRows", rows);
    visit("nvmlDeviceGetCurrentClocksEventReasons", slowed);
    visit("nvmlDeviceGetCurrentClocksThrottleReasons", slowed);  // its name before 535
    visit("nvmlDeviceGetClockInfo", clock);
    visit("nvmlDeviceGetMaxClockInfo", most_clock);
    visit("nvmlDeviceGetTemperature", temperature);
    visit("nvmlDeviceGetPowerUsage", power);
    visit("nvmlDeviceGetUtilizationRates", utilization);
    visit("nvmlDeviceGetCurrPcieLinkWidth", lanes);
    visit("nvmlDeviceGetMaxPcieLinkWidth", most_lanes);
    visit("nvmlDeviceGetNvLinkState", link);
    visit("nvmlDeviceGetP2PStatus", peer);
  }
};

struct Reason {
  unsigned long long bit;
  const char* words;
};
constexpr Reason kReasons[] = {{0x08, "the hardware's slowdown (heat or power)"},
                               {0x20, "heat (software's slowdown)"},
                               {0x40, "heat (hardware's slowdown)"},
                               {0x80, "the power brake of its power supply"}};
constexpr std::array<const char*, 7> kPeerWords = {"",
                                                   "the chip set does not support it",
                                                   "the GPUs do not support it",
                                                   "they lie on different I/O hubs",
                                                   "it is disabled in the driver",
                                                   "it is not supported",
                                                   "the driver does not tell why"};

/// Returns whether this machine has a PCI device of NVIDIA.
bool has_card() {
  std::error_code error;
  for (std::filesystem::directory_iterator device("/sys/bus/pci/devices", error), end; !error && device != end;
       device.increment(error)) {
    std::string vendor;
    if (std::ifstream(device->path() / "vendor") >> vendor && vendor == "0x10de") return true;
  }
  return false;
}

/// The library while it is in use.
class Library {
 public:
  Library() {
    const char* file = std::getenv("QFT_NVML_LIBRARY");
    void* object = dlopen(file != nullptr ? file : "libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    if (object == nullptr) {
      why_ = file != nullptr ? fmt::format("QFT_NVML_LIBRARY '{}' does not load", file) : "no NVIDIA driver is installed";
      return;
    }
    table_.visit([&](const char* symbol, auto& function) {
      if (function == nullptr) function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(object, symbol));
    });
    const Result result = table_.init != nullptr && table_.count != nullptr && table_.device != nullptr ? table_.init() : -1;
    if (result != kSuccess) why_ = fmt::format("NVIDIA's driver does not answer: {}", words_of(result));
    open_ = result == kSuccess;
    installed_ = result != kNotLoaded || has_card();  // GPU images contain the library even on nodes without a GPU
  }
  ~Library() {
    if (open_ && table_.shutdown != nullptr) table_.shutdown();
  }
  Library(const Library&) = delete;
  Library& operator=(const Library&) = delete;

  const std::string& why() const { return why_; }
  bool installed() const { return installed_; }
  const Table* operator->() const { return &table_; }

  std::string words_of(Result result) const {
    const char* text = table_.error != nullptr ? table_.error(result) : nullptr;
    return text != nullptr ? text : fmt::format("error {}", result);
  }

  /// Calls a function that writes a number; returns nothing if it is missing or fails.
  template <class Number, class Function, class... Arguments>
  std::optional<Number> number(Function function, Arguments... arguments) const {
    Number value{};
    if (function == nullptr || function(arguments..., &value) != kSuccess) return std::nullopt;
    return value;
  }
  template <class Function, class... Arguments>
  std::string text(Function function, Arguments... arguments) const {
    std::array<char, 128> buffer{};
    if (function == nullptr || function(arguments..., buffer.data(), static_cast<unsigned>(buffer.size() - 1)) != kSuccess)
      return {};
    return buffer.data();
  }

 private:
  Table table_;
  std::string why_;
  bool open_ = false, installed_ = false;
};

std::vector<GpuProcess> processes_of(const Library& nvml, Device device) {
  std::vector<ProcessInfo> infos(16);
  auto count = static_cast<unsigned>(infos.size());
  if (nvml->processes == nullptr) return {};
  Result result = nvml->processes(device, &count, infos.data());
  if (result == kTooSmall) {
    infos.resize(count += 16);
    result = nvml->processes(device, &count, infos.data());
  }
  if (result != kSuccess) return {};
  infos.resize(count);
  std::vector<GpuProcess> processes;
  for (const ProcessInfo& info : infos)
    processes.push_back(
        {info.pid, info.bytes == kUntold ? 0 : static_cast<std::int64_t>(info.bytes), nvml.text(nvml->process_name, info.pid)});
  return processes;
}

std::optional<int> as_int(const std::optional<unsigned>& value) {
  return value ? std::optional(static_cast<int>(*value)) : std::nullopt;
}

GpuState state_of(const Library& nvml, Device device) {
  GpuState gpu;
  gpu.name = nvml.text(nvml->name, device);
  gpu.uuid = nvml.text(nvml->uuid, device);
  if (const auto memory = nvml.number<MemoryInfo>(nvml->memory, device))
    gpu.memory = static_cast<std::int64_t>(memory->total), gpu.used = static_cast<std::int64_t>(memory->used);
  gpu.processes = processes_of(nvml, device);
  if (const auto errors = nvml.number<unsigned long long>(nvml->errors, device, kUncorrected, kSinceLoaded))
    gpu.uncorrected_errors = static_cast<std::int64_t>(*errors);
  unsigned corrected = 0, uncorrected = 0, pending = 0, failed = 0;
  if (nvml->rows != nullptr && nvml->rows(device, &corrected, &uncorrected, &pending, &failed) == kSuccess)
    gpu.remap_pending = pending != 0, gpu.remap_failed = failed != 0;
  const auto slowed = nvml.number<unsigned long long>(nvml->slowed, device).value_or(0);
  for (const Reason& reason : kReasons)
    if ((slowed & reason.bit) != 0) gpu.slowed_by.emplace_back(reason.words);
  gpu.clock_mhz = as_int(nvml.number<unsigned>(nvml->clock, device, kMultiprocessors));
  gpu.max_clock_mhz = as_int(nvml.number<unsigned>(nvml->most_clock, device, kMultiprocessors));
  gpu.temperature = as_int(nvml.number<unsigned>(nvml->temperature, device, kCelsius));
  if (const auto milliwatts = nvml.number<unsigned>(nvml->power, device)) gpu.watts = *milliwatts / 1e3;
  if (const auto use = nvml.number<Utilization>(nvml->utilization, device)) gpu.use_percent = static_cast<int>(use->gpu);
  gpu.pcie_lanes = as_int(nvml.number<unsigned>(nvml->lanes, device));
  gpu.max_pcie_lanes = as_int(nvml.number<unsigned>(nvml->most_lanes, device));
  for (unsigned link = 0; link < kMostLinks; ++link)
    if (const auto up = nvml.number<unsigned>(nvml->link, device, link)) (*up != 0 ? gpu.links_up : gpu.links_down) += 1;
  return gpu;
}

std::string peer_words(const Library& nvml, Device from, Device to) {
  const auto status = from == to ? 0U : nvml.number<unsigned>(nvml->peer, from, to, kRead).value_or(0);
  return kPeerWords[std::min<std::size_t>(status, kPeerWords.size() - 1)];
}

}  // namespace

GpuReport gpu_report() {
  GpuReport report;
  const Library nvml;
  report.installed = nvml.installed();
  if (report.error = nvml.why(); !report.error.empty()) return report;
  report.driver = nvml.text(nvml->driver);
  if (const auto cuda = nvml.number<int>(nvml->cuda)) report.cuda = fmt::format("{}.{}", *cuda / 1000, *cuda % 1000 / 10);
  std::vector<Device> devices(nvml.number<unsigned>(nvml->count).value_or(0), nullptr);
  for (unsigned i = 0; i < devices.size(); ++i) {
    const Result result = nvml->device(i, &devices[i]);
    if (result == kSuccess) continue;
    devices[i] = nullptr;
    if (result != kNoPermission)  // no permission: a GPU of another job; other errors: a GPU that has fallen off the bus
      report.lost.push_back(fmt::format("GPU {} of {} does not answer: {}", i, devices.size(), nvml.words_of(result)));
  }
  for (std::size_t i = 0; i < devices.size(); ++i) {
    if (devices[i] == nullptr) continue;
    GpuState& gpu = report.gpus.emplace_back(state_of(nvml, devices[i]));
    gpu.index = static_cast<int>(i);
    for (Device other : devices) gpu.peers.push_back(other == nullptr ? "" : peer_words(nvml, devices[i], other));
  }
  return report;
}

}  // namespace qft::device
