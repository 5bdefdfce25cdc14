// Checks the GPUs of every node, as reported by the driver's management library.
#include "qft/core/units.h"
#include "qft/device/backends.h"
#include "qft/device/nvml.h"

#include <algorithm>
#include <sys/stat.h>
#include <unistd.h>

#include "probe.h"
#include <fmt/ranges.h>

namespace qft::check {
namespace {

constexpr std::int64_t kHeldWithoutProcess = std::int64_t{2} << 30;  // the driver itself uses less
constexpr double kLittle = 256 << 20;                                // a service such as MPS uses less

template <class T>
Json value_or_null(const std::optional<T>& value) {
  return value ? Json(*value) : Json();
}

Json as_json(const device::GpuState& gpu) {
  Json processes = Json::array();
  for (const auto& p : gpu.processes) processes.push_back({{"pid", p.pid}, {"bytes", p.bytes}, {"name", p.name}});
  return {{"index", gpu.index},
          {"name", gpu.name},
          {"uuid", gpu.uuid},
          {"memory", gpu.memory},
          {"used", gpu.used},
          {"processes", processes},
          {"uncorrected_errors", value_or_null(gpu.uncorrected_errors)},
          {"remap_pending", value_or_null(gpu.remap_pending)},
          {"remap_failed", value_or_null(gpu.remap_failed)},
          {"slowed_by", gpu.slowed_by},
          {"clock_mhz", value_or_null(gpu.clock_mhz)},
          {"most_clock_mhz", value_or_null(gpu.max_clock_mhz)},
          {"temperature", value_or_null(gpu.temperature)},
          {"pcie_lanes", value_or_null(gpu.pcie_lanes)},
          {"most_pcie_lanes", value_or_null(gpu.max_pcie_lanes)},
          {"links_up", gpu.links_up},
          {"links_down", gpu.links_down},
          {"peers", gpu.peers}};
}

/// Returns the pid in the host's numbering, as the driver uses it; 0 in a container with its own numbering.
unsigned pid_of_host() {
  constexpr ino_t kHostsNumbers = 0xEFFFFFFC;  // Linux' PROC_PID_INIT_INO
  struct stat numbers{};
  return stat("/proc/self/ns/pid", &numbers) == 0 && numbers.st_ino == kHostsNumbers ? static_cast<unsigned>(getpid()) : 0;
}

bool has_gpus(const Facts& facts) {
  const auto leaders = facts.leaders();
  return !facts.options.use_cpu &&
         std::any_of(leaders.begin(), leaders.end(), [&](int rank) { return !facts.at(rank, "gpus").empty(); });
}

/// Returns the GPUs that the job's ranks use; all GPUs, if ranks compute elsewhere or on slices with separate UUIDs.
std::vector<std::string> used_gpus(const Facts& facts) {
  std::vector<std::string> known, mine;
  for (const int rank : facts.leaders())
    for (const Json& gpu : facts.at(rank, "gpus")) known.push_back(gpu.at("uuid"));
  for (const int rank : facts.all())
    if (const std::string uuid = facts.at(rank, "uuid"); std::find(known.begin(), known.end(), uuid) != known.end())
      mine.push_back(uuid);
  return mine.empty() ? known : mine;
}

/// A fault of a GPU; no text: none.
struct Fault {
  std::string text;
  Level level = Level::problem;
};

/// Judges every GPU of the job separately.
template <class Find>
void judge_each(const Facts& facts, Judgement& out, const char* fine, Find&& fault_of) {
  if (!has_gpus(facts)) return;
  const auto mine = used_gpus(facts);
  bool good = true;
  for (const int rank : facts.leaders())
    for (const Json& gpu : facts.at(rank, "gpus")) {
      if (std::find(mine.begin(), mine.end(), gpu.at("uuid")) == mine.end()) continue;
      const Fault fault = fault_of(gpu, rank);
      if (fault.text.empty()) continue;
      good = false;
      const std::vector<int> there{rank};
      const auto text = fmt::format("GPU {} of {} {}", gpu.at("index").get<int>(),
                                    facts.places[static_cast<std::size_t>(rank)].host, fault.text);
      fault.level == Level::problem ? out.fail(text, there) : out.warn(text, there);
    }
  if (good) out.fine(fine);
}

Fault memory_fault(const Json& gpu, const std::vector<unsigned>& own) {
  std::vector<std::string> parts;
  double held = 0;
  for (const Json& p : gpu.at("processes")) {
    const auto pid = p.at("pid").get<unsigned>();
    if (std::find(own.begin(), own.end(), pid) != own.end()) continue;  // a rank of this job
    const std::string name = p.at("name");
    const auto bytes = p.at("bytes").get<double>();
    held += bytes > 0 ? bytes : kLittle;  // an unknown amount may be large
    parts.push_back(fmt::format("process {}{}{}", pid, name.empty() ? "" : fmt::format(" ({})", name),
                                bytes > 0 ? fmt::format(" with {}", format_bytes(bytes)) : ""));
  }
  const auto used = gpu.at("used").get<std::int64_t>();
  const auto size = format_bytes(gpu.at("memory").get<double>());
  if (!parts.empty())
    return {fmt::format("holds memory of other programs: {} ({} of {} in use)", fmt::join(parts, ", "),
                        format_bytes(static_cast<double>(used)), size),
            held < kLittle ? Level::warning : Level::problem};
  if (used > kHeldWithoutProcess && gpu.at("processes").empty())
    return {fmt::format("has {} of {} in use, but the driver names no process: it has died, or runs in another container",
                        format_bytes(static_cast<double>(used)), size)};
  return {};
}

Fault error_fault(const Json& gpu) {
  std::vector<std::string> parts;
  if (const Json& errors = gpu.at("uncorrected_errors"); !errors.is_null() && errors.get<std::int64_t>() > 0)
    parts.push_back(fmt::format("{} uncorrected ECC errors since the driver was loaded", errors.get<std::int64_t>()));
  if (gpu.at("remap_failed") == true) parts.emplace_back("a row of its memory that could not be replaced");
  if (gpu.at("remap_pending") == true) parts.emplace_back("a row of its memory that waits for a reset to be replaced");
  if (parts.empty()) return {};
  return {fmt::format("has {}", fmt::join(parts, ", "))};
}

Fault clock_fault(const Json& gpu) {
  if (gpu.at("slowed_by").empty()) return {};
  const auto number = [&](const char* key, const char* unit) {
    return gpu.at(key).is_null() ? std::string("unknown") : fmt::format("{} {}", gpu.at(key).get<int>(), unit);
  };
  return {
      fmt::format("is slowed down by {}: {} of {}, at {}", fmt::join(gpu.at("slowed_by").get<std::vector<std::string>>(), ", "),
                  number("clock_mhz", "MHz"), number("most_clock_mhz", "MHz"), number("temperature", "degrees")),
      Level::warning};
}

Fault peer_fault(const Json& gpu) {
  std::map<std::string, std::vector<std::size_t>> why;
  for (std::size_t i = 0; i < gpu.at("peers").size(); ++i)
    if (const std::string text = gpu.at("peers")[i]; !text.empty()) why[text].push_back(i);
  std::vector<std::string> parts;
  for (const auto& [text, gpus] : why) parts.push_back(fmt::format("GPU {}: {}", fmt::join(gpus, ", "), text));
  if (parts.empty()) return {};
  return {fmt::format("copies through host memory to {}", fmt::join(parts, "; ")), Level::warning};
}

/// Returns the GPU models with at least one active link. Cards without a bridge have all links down, which is not a fault.
std::set<std::string> models_with_links(const Facts& facts) {
  std::set<std::string> models;
  for (const int rank : facts.leaders())
    for (const Json& gpu : facts.at(rank, "gpus"))
      if (gpu.at("links_up").get<int>() > 0) models.insert(gpu.at("name"));
  return models;
}

Fault link_fault(const Json& gpu, bool others_have_links, std::size_t gpus_of_node) {
  const int up = gpu.at("links_up"), down = gpu.at("links_down");
  const std::string name = gpu.at("name");
  if (down == 0) return {};
  const auto text = fmt::format("has {} of {} NVLinks down", down, up + down);
  if (others_have_links) return {text};
  // A board with NVSwitch, unless a virtual machine sees only one of its GPUs.
  const bool board = name.find("SXM") != name.npos || name.find("HGX") != name.npos;
  return board && gpus_of_node > 1 ? Fault{text, Level::warning} : Fault{};
}

Fault lane_fault(const Json& gpu) {
  const Json &now = gpu.at("pcie_lanes"), &most = gpu.at("most_pcie_lanes");
  if (now.is_null() || most.is_null() || now.get<int>() >= most.get<int>()) return {};
  return {fmt::format("has {} of its {} PCIe lanes", now.get<int>(), most.get<int>()), Level::warning};
}

}  // namespace

Json gather_gpus(Context& context) {
  const auto& report = context.options.gpus;
  const c10::Device device = context.options.device;
  Json gpus = Json::array();
  for (const auto& gpu : report.gpus) gpus.push_back(as_json(gpu));
  const auto* facts = device.is_cpu() ? nullptr : &device::facts_of(device);
  return {{"error", report.error},
          {"installed", report.installed},
          {"lost", report.lost},
          {"pid", pid_of_host()},
          {"driver", report.driver},
          {"cuda", report.cuda},
          {"gpus", gpus},
          {"uuid", facts != nullptr ? facts->uuid : ""},
          {"unified", facts != nullptr && facts->unified}};
}

void judge_driver(const Facts& facts, Judgement& out) {
  const auto leaders = facts.leaders();
  const bool expected = has_gpus(facts) || std::any_of(leaders.begin(), leaders.end(), [&](int rank) {
                          return facts.at(rank, "installed").get<bool>() && facts.at(rank, "error") != "";
                        });
  const auto fault_of = [&](int rank) {
    const std::string error = facts.at(rank, "error");
    return error.empty() ? fmt::format("{}", fmt::join(facts.at(rank, "lost").get<std::vector<std::string>>(), "; ")) : error;
  };
  std::vector<int> failed, good;
  for (const int rank : leaders) (fault_of(rank).empty() ? good : failed).push_back(rank);
  if (const Groups faults = group(failed, fault_of); !failed.empty() && (expected || facts.at(failed.front(), "error") == "")) {
    facts.options.use_cpu ? out.warn(describe(facts, faults), failed) : out.fail(describe(facts, faults), failed);
  } else if (!has_gpus(facts)) {
    out.fine(fmt::format("not used: {}", failed.empty() ? "no GPU is asked for, or there is none" : fault_of(failed.front())));
    return;
  }
  const Groups versions = group(good, [&](int rank) {
    return fmt::format("{} (CUDA {})", facts.at(rank, "driver").get<std::string>(), facts.at(rank, "cuda").get<std::string>());
  });
  if (versions.size() > 1)
    out.fail(describe(facts, versions), minority(versions));
  else if (failed.empty())
    out.fine(versions.front().first);
}

void judge_gpus(const Facts& facts, Judgement& out) {
  if (!has_gpus(facts)) return;
  const Groups groups = group(facts.leaders(), [&](int rank) {
    std::map<std::string, int> kinds;
    for (const Json& gpu : facts.at(rank, "gpus")) ++kinds[gpu.at("name")];
    std::vector<std::string> parts;
    for (const auto& [name, count] : kinds) parts.push_back(fmt::format("{} x {}", count, name));
    return parts.empty() ? std::string("no GPU") : fmt::format("{}", fmt::join(parts, " + "));
  });
  if (groups.size() == 1)
    out.fine(groups.front().first);
  else
    out.fail(describe(facts, groups), minority(groups));
}

void judge_gpu_memory(const Facts& facts, Judgement& out) {
  judge_each(facts, out, "no other program holds any", [&](const Json& gpu, int rank) {
    const int node = facts.places[static_cast<std::size_t>(rank)].node;
    std::vector<unsigned> own;
    for (const int other : facts.all())
      if (facts.places[static_cast<std::size_t>(other)].node == node) own.push_back(facts.at(other, "pid"));
    return memory_fault(gpu, own);
  });
}

void judge_gpu_errors(const Facts& facts, Judgement& out) {
  judge_each(facts, out, "no uncorrected error, no row to replace", [](const Json& gpu, int) { return error_fault(gpu); });
}

void judge_gpu_clocks(const Facts& facts, Judgement& out) {
  judge_each(facts, out, "nothing slows them down", [](const Json& gpu, int) { return clock_fault(gpu); });
}

void judge_gpu_peers(const Facts& facts, Judgement& out) {
  judge_each(facts, out, "GPUs of a node copy to each other directly", [](const Json& gpu, int) { return peer_fault(gpu); });
}

void judge_gpu_links(const Facts& facts, Judgement& out) {
  const auto linked = models_with_links(facts);
  const char* fine = linked.empty() ? "no NVLink in use" : "none is down";
  judge_each(facts, out, fine, [&](const Json& gpu, int rank) {
    return link_fault(gpu, linked.count(gpu.at("name")) > 0, facts.at(rank, "gpus").size());
  });
  if (!has_gpus(facts)) return;
  const Groups groups = group(facts.leaders(), [&](int rank) {
    int links = 0;
    for (const Json& gpu : facts.at(rank, "gpus")) links += gpu.at("links_up").get<int>() + gpu.at("links_down").get<int>();
    return fmt::format("{} links", links);
  });
  if (groups.size() > 1) out.fail(describe(facts, groups), minority(groups));
}

void judge_gpu_lanes(const Facts& facts, Judgement& out) {
  judge_each(facts, out, "every GPU has all of its lanes", [](const Json& gpu, int) { return lane_fault(gpu); });
}

void judge_unified_memory(const Facts& facts, Judgement& out) {
  std::vector<int> unified;
  for (const int rank : facts.all())
    if (facts.at(rank, "unified").get<bool>()) unified.push_back(rank);
  if (!unified.empty())
    out.fine(fmt::format("the device uses host memory on {}: offloading moves nothing there, and file caches use the same memory",
                         facts.where(unified)));
}

}  // namespace qft::check
