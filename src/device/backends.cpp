#include "qft/device/backends.h"

#include "qft/core/error.h"
#include "qft/core/program.h"

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <dlfcn.h>
#include <filesystem>
#include <map>
#include <mutex>
#include <sstream>
#include <utility>

#include <fmt/format.h>

namespace qft::device {
namespace {

namespace fs = std::filesystem;

std::string dl_error() {
  const char* text = dlerror();
  return text == nullptr ? "no reason given" : text;
}

/// Why a kind is not used; empty: no known reason. `broken`: something is installed that should work.
struct Obstacle {
  std::string why;
  bool broken = false;
};

/// Checks CUDA without loading LibTorch's CUDA libraries, which takes a second.
Obstacle cuda_obstacle() {
  void* driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (driver == nullptr) return {fmt::format("no NVIDIA driver: {}", dl_error())};
  const auto init = reinterpret_cast<int (*)(unsigned)>(dlsym(driver, "cuInit"));
  const auto count_devices = reinterpret_cast<int (*)(int*)>(dlsym(driver, "cuDeviceGetCount"));
  if (init == nullptr || count_devices == nullptr)
    return {fmt::format("libcuda.so.1 is not an NVIDIA driver: {}", dl_error()), true};
  constexpr int kNoDevice = 100;  // CUDA_ERROR_NO_DEVICE
  const int started = init(0);
  if (started != 0 && started != kNoDevice)
    return {fmt::format("the NVIDIA driver does not start (cuInit: error {}): does nvidia-smi work here?", started), true};
  int count = 0;
  const int counted = started == 0 ? count_devices(&count) : 0;
  if (counted != 0) return {fmt::format("cuDeviceGetCount: error {}", counted), true};
  if (count > 0) return {};
  const char* visible = std::getenv("CUDA_VISIBLE_DEVICES");
  return {visible == nullptr ? "the driver shows no GPU" : fmt::format("CUDA_VISIBLE_DEVICES='{}' leaves no GPU", visible)};
}

struct Kind {
  std::string_view name;
  Obstacle (*obstacle)() = nullptr;  ///< checks before loading the file; null: no check
  /// A library to take from LD_LIBRARY_PATH instead of the run path of LibTorch's copy.
  const char* from_search_path = nullptr;
};
constexpr Kind kKinds[] = {{"cuda", cuda_obstacle, "libnccl.so.2"}};

std::string file_name(std::string_view kind) {
  return fmt::format("libqft_{}.so", kind);
}

/// Returns the file in QFT_BACKEND_PATH, beside the program, or in an installation's lib/qft.
fs::path file_of(std::string_view kind) {
  const std::string name = file_name(kind);
  const char* path = std::getenv("QFT_BACKEND_PATH");
  std::error_code error;
  const fs::path program = program_folder();
  const std::vector<fs::path> folders =
      path != nullptr ? std::vector<fs::path>{path} : std::vector<fs::path>{program, program.parent_path() / "lib/qft"};
  for (const fs::path& folder : folders)
    if (fs::exists(folder / name, error)) return folder / name;
  return {};
}

/// Returns the file of this name in the first folder of LD_LIBRARY_PATH that has one; empty: none.
fs::path in_search_path(const char* name) {
  const char* path = std::getenv("LD_LIBRARY_PATH");
  std::istringstream folders(path == nullptr ? "" : path);
  std::error_code error;
  for (std::string folder; std::getline(folders, folder, ':');)
    if (!folder.empty() && fs::exists(fs::path(folder) / name, error)) return fs::path(folder) / name;
  return {};
}

/// Returns null if it does not load; dl_error() says why.
void* open_object(const Kind& kind, const fs::path& file, BackendEntry& entry) {
  const fs::path preferred = kind.from_search_path == nullptr ? fs::path() : in_search_path(kind.from_search_path);
  void* first = preferred.empty() ? nullptr : dlopen(preferred.c_str(), RTLD_NOW | RTLD_GLOBAL);
  void* object = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (object != nullptr || first == nullptr) return object;
  entry.note =
      fmt::format("'{}' comes first in LD_LIBRARY_PATH, but LibTorch's own library is used: {}", preferred.string(), dl_error());
  dlclose(first);
  return dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
}

/// Returns the Backend in the object; null, with the reason in `entry`, if it belongs to another build.
const Backend* backend_in(void* object, const fs::path& file, BackendEntry& entry) {
  const auto function = object == nullptr ? nullptr : reinterpret_cast<BackendFunction>(dlsym(object, kBackendFunction));
  if (function == nullptr) {
    entry.why = fmt::format("'{}' does not load: {}", file.string(), dl_error());
    return nullptr;
  }
  const auto* abi = static_cast<BackendAbi*>(dlsym(object, kBackendAbi));
  const std::string_view theirs = abi == nullptr ? "none" : *abi;
  if (theirs == QFT_BACKEND_ABI) return function();
  entry.why = fmt::format("'{}' and the program are from different builds (ABI {} and {}): rebuild or reinstall both",
                          file.string(), theirs, QFT_BACKEND_ABI);
  return nullptr;
}

BackendEntry load(const Kind& kind) {
  BackendEntry entry;
  entry.name = kind.name;
  const fs::path file = file_of(kind.name);
  if (file.empty()) {
    entry.why = fmt::format("{} is not beside the program", file_name(kind.name));
    return entry;
  }
  const Obstacle obstacle = kind.obstacle == nullptr ? Obstacle() : kind.obstacle();
  entry.why = obstacle.why;
  entry.broken = obstacle.broken;
  if (!entry.why.empty()) return entry;
  entry.backend = backend_in(open_object(kind, file, entry), file, entry);
  if (entry.backend != nullptr) entry.count = entry.backend->count(entry.why);
  entry.broken = entry.count == 0;
  return entry;
}

/// Returns the kind that QFT_DEVICE names and that has no row in the table; empty if there is none, or no file for it.
std::string_view kind_by_name() {
  const char* asked = std::getenv("QFT_DEVICE");
  const std::string_view wish = asked == nullptr ? "" : asked, name = wish.substr(0, wish.find(':'));
  const bool is_name = std::ranges::all_of(name, [](unsigned char c) { return std::isalnum(c) != 0 || c == '_'; });
  const bool has_row = std::ranges::find(kKinds, name, &Kind::name) != std::end(kKinds);
  return !is_name || has_row || file_of(name).empty() ? std::string_view() : name;
}

/// LibTorch has a single slot for kinds that it does not know, and prefers devices that exist: so a kind loaded by name is loaded
/// alone.
std::vector<BackendEntry> load_all() {
  const std::string_view alone = kind_by_name();
  std::vector<BackendEntry> entries;
  for (const Kind& kind : kKinds)
    entries.push_back(alone.empty()
                          ? load(kind)
                          : BackendEntry{.name = std::string(kind.name), .why = fmt::format("QFT_DEVICE names {}", alone)});
  if (!alone.empty()) entries.push_back(load({.name = alone}));
  return entries;
}

}  // namespace

std::span<const BackendEntry> load_backends() {
  static const std::vector<BackendEntry> entries = load_all();
  return entries;
}

std::vector<std::string> kind_names() {
  std::vector<std::string> names = {"cpu"};
  for (const Kind& kind : kKinds) names.emplace_back(kind.name);
  if (const auto name = kind_by_name(); !name.empty()) names.emplace_back(name);
  return names;
}

const BackendEntry* find_backend_entry(std::string_view kind) {
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

bool records_graphs(c10::Device device) {
  return !device.is_cpu() && facts_of(device).graphs;
}

std::vector<std::string> backend_warnings() {
  std::vector<std::string> all;
  for (const BackendEntry& entry : load_backends()) {
    if (entry.broken) all.push_back(fmt::format("{} is not used: {}", entry.name, entry.why));
    if (!entry.note.empty()) all.push_back(entry.note);
  }
  return all;
}

std::string obstacle_of(std::string_view kind, int index) {
  const BackendEntry* entry = find_backend_entry(kind);
  if (entry == nullptr || entry->backend == nullptr) return {};
  const DeviceFacts& facts = facts_of(c10::Device(entry->backend->type(), static_cast<c10::DeviceIndex>(index)));
  if (facts.obstacle.empty()) return {};
  return fmt::format(
      "{}:{} ({}) cannot be used: {}; use a LibTorch and a build that support it (docs/devices.md), or set use_cpu: true", kind,
      index, facts.name, facts.obstacle);
}

}  // namespace qft::device
