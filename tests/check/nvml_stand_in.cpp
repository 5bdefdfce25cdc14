// A fake of NVIDIA's management library. QFT_NVML_LIBRARY names this object; QFT_NVML_STAND_IN names a file that describes the
// machine, one item per line: "driver 570.86" "gpus 2" "lost 1" (that GPU does not answer), "hidden 1" (another job's), "broken"
// (nothing answers); and for GPU N "N process PID BYTES", "N held BYTES", "N errors COUNT", "N pending", "N failed", "N slowed
// MASK", "N lanes COUNT" (of 16), "N links UP DOWN", "N peer STATUS".
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

namespace {

constexpr int kOk = 0, kNotSupported = 3, kNoPermission = 4, kTooSmall = 7, kLost = 15, kMismatch = 18;
constexpr unsigned long long kMemory = 80ULL << 30, kIdle = 500ULL << 20;

struct Gpu {
  unsigned index = 0;
  std::vector<std::pair<unsigned, unsigned long long>> processes;
  unsigned long long held = kIdle, errors = 0, slowed = 1;  // 1: idle, which is not a fault
  bool pending = false, failed = false;
  unsigned lanes = 16, up = 4, down = 0, peer = 0;
};
struct Node {
  std::string driver = "570.86.15";
  unsigned lost = ~0U, hidden = ~0U;
  bool broken = false;
  std::vector<Gpu> gpus;
};

void read_gpu(Gpu& gpu, std::istringstream& line) {
  std::string what;
  line >> what;
  if (what == "process") {
    unsigned pid = 0;
    unsigned long long bytes = 0;
    line >> pid >> bytes;
    gpu.processes.emplace_back(pid, bytes);
    gpu.held += bytes;
  }
  if (what == "held") line >> gpu.held;
  if (what == "errors") line >> gpu.errors;
  if (what == "pending") gpu.pending = true;
  if (what == "failed") gpu.failed = true;
  if (what == "slowed") line >> gpu.slowed;
  if (what == "lanes") line >> gpu.lanes;
  if (what == "links") line >> gpu.up >> gpu.down;
  if (what == "peer") line >> gpu.peer;
}

Node read_node() {
  Node node;
  const char* file = std::getenv("QFT_NVML_STAND_IN");
  std::ifstream in(file != nullptr ? file : "/dev/null");
  for (std::string text; std::getline(in, text);) {
    std::istringstream line(text);
    std::string word;
    line >> word;
    if (word == "driver") line >> node.driver;
    if (word == "lost") line >> node.lost;
    if (word == "hidden") line >> node.hidden;
    if (word == "broken") node.broken = true;
    if (word == "gpus") {
      std::size_t count = 0;
      line >> count;
      node.gpus.resize(count);
      for (std::size_t i = 0; i < count; ++i) node.gpus[i].index = static_cast<unsigned>(i);
    }
    if (!word.empty() && word[0] >= '0' && word[0] <= '9') read_gpu(node.gpus.at(std::stoul(word)), line);
  }
  return node;
}

Node& node() {
  static Node it = read_node();
  return it;
}
Gpu& gpu_of(void* device) {
  return *static_cast<Gpu*>(device);
}
int give(char* text, unsigned size, const std::string& value) {
  std::snprintf(text, size, "%s", value.c_str());
  return kOk;
}
int give(unsigned* value, unsigned it) {
  *value = it;
  return kOk;
}

}  // namespace

extern "C" {

int nvmlInit_v2() {
  node() = read_node();
  return node().broken ? kMismatch : kOk;
}
int nvmlShutdown() {
  return kOk;
}
const char* nvmlErrorString(int result) {
  return result == kLost ? "GPU is lost" : result == kMismatch ? "Driver/library version mismatch" : "Not Supported";
}
int nvmlSystemGetDriverVersion(char* text, unsigned size) {
  return give(text, size, node().driver);
}
int nvmlSystemGetCudaDriverVersion(int* version) {
  *version = 12080;
  return kOk;
}
int nvmlDeviceGetCount_v2(unsigned* count) {
  return give(count, static_cast<unsigned>(node().gpus.size()));
}
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void** device) {
  if (index == node().lost) return kLost;
  if (index == node().hidden) return kNoPermission;
  *device = &node().gpus.at(index);
  return kOk;
}
int nvmlDeviceGetName(void*, char* text, unsigned size) {
  return give(text, size, "NVIDIA Stand-In 80GB");
}
int nvmlDeviceGetUUID(void* device, char* text, unsigned size) {
  return give(text, size, "GPU-" + std::to_string(gpu_of(device).index));
}
int nvmlDeviceGetMemoryInfo(void* device, unsigned long long* info) {
  info[0] = kMemory, info[2] = gpu_of(device).held, info[1] = info[0] - info[2];
  return kOk;
}
struct Process {
  unsigned pid;
  unsigned long long bytes;
  unsigned gpu_instance, compute_instance;
};
int nvmlDeviceGetComputeRunningProcesses_v3(void* device, unsigned* count, Process* processes) {
  const auto& all = gpu_of(device).processes;
  const unsigned room = *count;
  *count = static_cast<unsigned>(all.size());
  if (all.size() > room) return kTooSmall;
  for (std::size_t i = 0; i < all.size(); ++i) processes[i] = {all[i].first, all[i].second, 0, 0};
  return kOk;
}
int nvmlSystemGetProcessName(unsigned pid, char* text, unsigned size) {
  return pid == 0 ? kNotSupported : give(text, size, "python3");
}
int nvmlDeviceGetTotalEccErrors(void* device, unsigned type, unsigned, unsigned long long* errors) {
  *errors = type == 1 ? gpu_of(device).errors : 0;
  return kOk;
}
int nvmlDeviceGetRemappedRows(void* device, unsigned* corrected, unsigned* uncorrected, unsigned* pending, unsigned* failed) {
  *corrected = *uncorrected = 0;
  *pending = gpu_of(device).pending ? 1 : 0;
  *failed = gpu_of(device).failed ? 1 : 0;
  return kOk;
}
int nvmlDeviceGetCurrentClocksThrottleReasons(void* device, unsigned long long* mask) {
  *mask = gpu_of(device).slowed;
  return kOk;
}
int nvmlDeviceGetClockInfo(void*, unsigned, unsigned* mhz) {
  return give(mhz, 1000);
}
int nvmlDeviceGetMaxClockInfo(void*, unsigned, unsigned* mhz) {
  return give(mhz, 1980);
}
int nvmlDeviceGetTemperature(void*, unsigned, unsigned* degrees) {
  return give(degrees, 87);
}
int nvmlDeviceGetPowerUsage(void*, unsigned* milliwatts) {
  return give(milliwatts, 123456);
}
int nvmlDeviceGetUtilizationRates(void*, unsigned* rates) {
  rates[0] = 17, rates[1] = 3;
  return kOk;
}
int nvmlDeviceGetCurrPcieLinkWidth(void* device, unsigned* lanes) {
  return give(lanes, gpu_of(device).lanes);
}
int nvmlDeviceGetMaxPcieLinkWidth(void*, unsigned* lanes) {
  return give(lanes, 16);
}
int nvmlDeviceGetNvLinkState(void* device, unsigned link, unsigned* up) {
  const Gpu& gpu = gpu_of(device);
  if (link >= gpu.up + gpu.down) return kNotSupported;
  return give(up, link < gpu.up ? 1 : 0);
}
int nvmlDeviceGetP2PStatus(void* from, void* to, unsigned, unsigned* status) {
  return give(status, gpu_of(from).peer != 0 ? gpu_of(from).peer : gpu_of(to).peer);
}
}
