#include "qft/device/device.h"

#include "qft/core/error.h"
#include "qft/core/units.h"
#include "qft/device/backends.h"

#include <charconv>
#include <cstdlib>
#include <fstream>
#include <vector>

#include <c10/core/impl/VirtualGuardImpl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/version.h>

namespace qft::device {
namespace {

std::string text_of(const DeviceFacts& facts) {
  return fmt::format("{}, {}, {}", facts.name, format_bytes(static_cast<double>(facts.memory)), facts.architecture);
}

}  // namespace

std::string device_words() {
  const std::vector<std::string> kinds = kind_names();
  std::string words = fmt::format("auto, {}", fmt::join(kinds, ", "));
  for (std::size_t i = 1; i < kinds.size(); ++i) words += fmt::format("{} {}:N", i + 1 < kinds.size() ? "," : " or", kinds[i]);
  return words;
}

DeviceWish parse_device(std::string_view wish) {
  const char* forced = std::getenv("QFT_DEVICE");
  if (wish == "auto" && forced != nullptr && std::string_view(forced) != "auto") return parse_device(forced);
  if (wish == "auto" || wish == "cpu") return {std::string(wish), {}};
  const auto colon = wish.find(':');
  DeviceWish parsed{std::string(wish.substr(0, colon)), {}};
  bool known = find_backend_entry(parsed.kind) != nullptr;
  if (colon != std::string_view::npos) {
    const auto digits = wish.substr(colon + 1);
    int index = 0;
    const auto result = std::from_chars(digits.data(), digits.data() + digits.size(), index);
    known = known && result.ec == std::errc() && result.ptr == digits.data() + digits.size() && index >= 0;
    parsed.index = index;
  }
  if (!known) fail_config("device '{}' is not known: use {}", wish, device_words());
  return parsed;
}

std::string kind_for(const DeviceWish& wish) {
  if (wish.kind == "cpu") return wish.kind;
  if (wish.kind == "auto") {
    for (const BackendEntry& entry : load_backends())
      if (entry.count > 0) return entry.name;
    return "cpu";
  }
  const BackendEntry& entry = *find_backend_entry(wish.kind);
  if (entry.count == 0) fail_config("device '{}' cannot be used here: {}", wish.kind, entry.why);
  if (wish.index && *wish.index >= entry.count)
    fail_config("device '{}:{}' does not exist: this process sees {} (0..{})", wish.kind, *wish.index, entry.count,
                entry.count - 1);
  return wish.kind;
}

int device_count(std::string_view kind) {
  if (kind == "cpu") return 1;
  const BackendEntry* entry = find_backend_entry(kind);
  return entry == nullptr ? 0 : entry->count;
}

c10::Device use_device(std::string_view kind, int index) {
  if (kind == "cpu") return c10::kCPU;
  const BackendEntry* entry = find_backend_entry(kind);
  QFT_ASSERT(entry != nullptr && index < entry->count, "device {}:{} is not here", kind, index);
  const c10::Device device(entry->backend->type(), static_cast<c10::DeviceIndex>(index));
  c10::impl::VirtualGuardImpl(device.type()).setDevice(device);
  return device;
}

c10::Device select_device(std::string_view wish) {
  const DeviceWish parsed = parse_device(wish);
  const std::string kind = kind_for(parsed);
  const int index = parsed.index.value_or(0);
  if (const std::string obstacle = obstacle_of(kind, index); !obstacle.empty()) fail_config("{}", obstacle);
  return use_device(kind, index);
}

std::string describe(c10::Device device) {
  if (!device.is_cpu()) return text_of(facts_of(device));
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("model name")) return line.substr(line.find(':') + 2);
  }
  return "CPU";
}

std::string library_version() {
  std::string text = fmt::format("LibTorch {}", TORCH_VERSION);
  for (const BackendEntry& entry : load_backends())
    if (entry.backend != nullptr) text += ", " + entry.backend->library_version();
  return text;
}

std::string describe_backends() {
  std::string text;
  for (const BackendEntry& entry : load_backends()) {
    if (entry.count == 0) {
      text += fmt::format("{}: not used: {}\n", entry.name, entry.why);
      continue;
    }
    text += fmt::format("{}: {} ({}), {}\n", entry.name, count_noun(entry.count, "device"), text_of(entry.backend->facts(0)),
                        entry.backend->library_version());
    for (int i = 0; i < entry.count; ++i)
      if (const std::string obstacle = obstacle_of(entry.name, i); !obstacle.empty()) text += "  " + obstacle + "\n";
  }
  return text;
}

}  // namespace qft::device
