#include "qft/device/backends.h"

#include "qft/core/error.h"

#include <algorithm>
#include <cstdlib>
#include <dlfcn.h>
#include <filesystem>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include <fmt/format.h>

namespace qft::device {
namespace {

namespace fs = std::filesystem;

std::string dl_error() {
  const char* text = dlerror();
  return text == nullptr ? "no reason given" : text;
}

/// Why CUDA cannot work in this process, without LibTorch's part of it, which takes a second to load; empty: it can.
std::string cuda_obstacle() {
  void* driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (driver == nullptr) return fmt::format("no NVIDIA driver: {}", dl_error());
  const auto init = reinterpret_cast<int (*)(unsigned)>(dlsym(driver, "cuInit"));
  const auto count_devices = reinterpret_cast<int (*)(int*)>(dlsym(driver, "cuDeviceGetCount"));
  if (init == nullptr || count_devices == nullptr) return fmt::format("libcuda.so.1 is no NVIDIA driver: {}", dl_error());
  if (const int code = init(0); code != 0)
    return fmt::format("the NVIDIA driver does not start (cuInit: error {}): does nvidia-smi work here?", code);
  int count = 0;
  if (const int code = count_devices(&count); code != 0) return fmt::format("cuDeviceGetCount: error {}", code);
  if (count > 0) return {};
  const char* visible = std::getenv("CUDA_VISIBLE_DEVICES");
  return visible == nullptr ? "the driver shows no GPU" : fmt::format("CUDA_VISIBLE_DEVICES='{}' leaves no GPU", visible);
}

/// The simulated device is for tests: LibTorch prefers it to others once it is there.
std::string sim_obstacle() {
  const char* asked = std::getenv("QFT_DEVICE");
  return asked != nullptr && std::string_view(asked) == "sim" ? "" : "not asked for (QFT_DEVICE=sim)";
}

struct Kind {
  const char* name;
  const char* file;
  std::string (*obstacle)();
  /// A library that the user's search path is to decide on, not the run path of LibTorch's.
  const char* from_search_path = nullptr;
  bool for_tests = false;  ///< nothing is said of it where it is not asked for
};
constexpr Kind kKinds[] = {{"cuda", "libqft_cuda.so", cuda_obstacle, "libnccl.so.2"},
                           {"sim", "libqft_sim.so", sim_obstacle, nullptr, /*for_tests=*/true}};

/// QFT_BACKEND_PATH, or beside the program, and lib/qft where that is installed.
fs::path file_of(const Kind& kind) {
  const char* path = std::getenv("QFT_BACKEND_PATH");
  std::error_code error;
  const fs::path program = fs::read_symlink("/proc/self/exe", error).parent_path();
  const std::vector<fs::path> folders =
      path != nullptr ? std::vector<fs::path>{path} : std::vector<fs::path>{program, program.parent_path() / "lib/qft"};
  for (const fs::path& folder : folders)
    if (fs::exists(folder / kind.file, error)) return folder / kind.file;
  return {};
}

BackendEntry load(const Kind& kind) {
  BackendEntry entry;
  entry.name = kind.name;
  const fs::path file = file_of(kind);
  if (file.empty()) {
    entry.why = fmt::format("{} is not beside the program", kind.file);
    return entry;
  }
  if (entry.why = kind.obstacle(); !entry.why.empty()) return entry;
  if (kind.from_search_path != nullptr) dlopen(kind.from_search_path, RTLD_NOW | RTLD_GLOBAL);  // else LibTorch's own is taken
  void* object = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  const auto function = object == nullptr ? nullptr : reinterpret_cast<BackendFunction>(dlsym(object, kBackendFunction));
  if (function == nullptr) {
    entry.why = fmt::format("'{}' does not load: {}", file.string(), dl_error());
    return entry;
  }
  entry.backend = function();
  entry.count = entry.backend->count(entry.why);
  return entry;
}

std::vector<BackendEntry> load_all() {
  std::vector<BackendEntry> entries;
  for (const Kind& kind : kKinds)
    if (!kind.for_tests || kind.obstacle().empty()) entries.push_back(load(kind));
  return entries;
}

}  // namespace

std::span<const BackendEntry> load_backends() {
  static const std::vector<BackendEntry> entries = load_all();
  return entries;
}

const BackendEntry* find_entry(std::string_view kind) {
  const auto entries = load_backends();
  const auto entry = std::ranges::find(entries, kind, &BackendEntry::name);
  return entry == entries.end() ? nullptr : &*entry;
}

const Backend* find_backend(c10::DeviceType type) {
  for (const BackendEntry& entry : load_backends())
    if (entry.backend != nullptr && entry.backend->type() == type) return entry.backend;
  return nullptr;
}

const Backend& backend_of(c10::Device device) {
  const Backend* backend = find_backend(device.type());
  QFT_ASSERT(backend != nullptr, "no back end for {} is loaded", device.str());
  return *backend;
}

const DeviceFacts& facts_of(c10::Device device) {
  static std::mutex mutex;
  static std::map<std::pair<c10::DeviceType, c10::DeviceIndex>, DeviceFacts> known;
  const std::lock_guard lock(mutex);
  const auto [entry, first] = known.try_emplace({device.type(), device.index()});
  if (first) entry->second = backend_of(device).facts(device.index());
  return entry->second;
}

bool has_own_memory(c10::Device device) {
  return !device.is_cpu() && !facts_of(device).unified;
}

std::string obstacle_of(std::string_view kind, int index) {
  const BackendEntry* entry = find_entry(kind);
  if (entry == nullptr || entry->backend == nullptr) return {};
  const DeviceFacts& facts = facts_of(c10::Device(entry->backend->type(), static_cast<c10::DeviceIndex>(index)));
  if (facts.obstacle.empty()) return {};
  return fmt::format(
      "{}:{} ({}) cannot be used: {}; take a LibTorch and a build that have it (docs/devices.md), or set use_cpu: true", kind,
      index, facts.name, facts.obstacle);
}

}  // namespace qft::device
