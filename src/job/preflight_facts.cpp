#include "qft/core/units.h"
#include "qft/core/version.h"
#include "qft/device/device.h"
#include "qft/device/memory.h"
#include "qft/device/threads.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>
#include <link.h>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "preflight_parts.h"
#include <fmt/format.h>

namespace qft::job {

namespace {

using Json = nlohmann::json;

constexpr std::int64_t kLeastMemory = std::int64_t{1} << 30;

// Libraries whose copies must match over the ranks, and variables that change what a rank does.
constexpr std::array<std::string_view, 5> kLibraries = {"libtorch_cpu.so", "libmpi.so", "libhdf5", "libnccl.so", "libc10.so"};
constexpr std::array<const char*, 7> kVariables = {"OMP_NUM_THREADS",    "CUDA_VISIBLE_DEVICES", "QFT_CHECK_COLLECTIVES",
                                                   "NCCL_SOCKET_IFNAME", "NCCL_IB_DISABLE",      "MALLOC_MMAP_THRESHOLD_",
                                                   "LD_PRELOAD"};

int note_library(dl_phdr_info* info, std::size_t, void* result) {
  const std::filesystem::path path = info->dlpi_name;
  const auto name = path.filename().string();
  for (const auto wanted : kLibraries) {
    if (name.starts_with(wanted)) (*static_cast<Json*>(result))[std::string(wanted)] = path.string();
  }
  return 0;
}

// The ranks by the value that `of` gives for them, "not set" for null.
template <class F>
std::map<std::string, std::vector<int>> group(const std::vector<Json>& facts, F&& of) {
  std::map<std::string, std::vector<int>> groups;
  for (std::size_t r = 0; r < facts.size(); ++r) {
    const Json& value = of(facts[r]);
    groups[value.is_null()     ? "not set"
           : value.is_string() ? value.template get<std::string>()
                               : value.dump()]
        .push_back(static_cast<int>(r));
  }
  return groups;
}

std::string describe(const std::map<std::string, std::vector<int>>& groups) {
  std::string text;
  for (const auto& [value, ranks] : groups) {
    text +=
        fmt::format("{}{} on rank{} {}", text.empty() ? "" : "; ", value, ranks.size() > 1 ? "s" : "", comm::format_ranks(ranks));
  }
  return text;
}

struct Compared {
  const char* key;
  const char* topic;
  Finding::Level if_different;
  const char* advice;
};
constexpr Compared kCompared[] = {
    {"qft", "qft version", Finding::Level::problem, "run the same installation on every node"},
    {"mpi", "MPI library", Finding::Level::problem, "load the same MPI module on every node and use its own mpirun"},
    {"torch", "LibTorch", Finding::Level::problem, "run the same installation on every node"},
    {"cpu", "CPU model", Finding::Level::note, "mixed nodes run at the pace of the slowest; results may differ in the last bits"},
    {"device", "device", Finding::Level::note, "mixed devices run at the pace of the slowest"},
    {"threads", "compute threads", Finding::Level::note,
     "ranks with fewer threads hold up the others: spread ranks evenly over nodes"},
};

void compare_table(const std::vector<Json>& facts, std::vector<Finding>& findings) {
  for (const auto& row : kCompared) {
    const auto groups = group(facts, [&](const Json& f) -> const Json& { return f.at(row.key); });
    const bool same = groups.size() == 1;
    findings.push_back({same ? Finding::Level::fine : row.if_different, row.topic,
                        same ? groups.begin()->first : describe(groups), same ? "" : row.advice});
  }
}

void compare_nested(const std::vector<Json>& facts, const char* section, std::string_view name, const char* advice,
                    std::vector<Finding>& findings) {
  static const Json kAbsent;
  const auto groups = group(facts, [&](const Json& f) -> const Json& {
    const auto& all = f.at(section);
    const auto found = all.find(std::string(name));
    return found == all.end() ? kAbsent : *found;
  });
  if (groups.size() > 1) findings.push_back({Finding::Level::note, std::string(name), describe(groups), advice});
}

void check_threads(const std::vector<Json>& facts, std::vector<Finding>& findings) {
  std::map<std::string, std::vector<int>> advice;
  for (std::size_t r = 0; r < facts.size(); ++r) {
    const auto text = facts[r].at("threads_advice").get<std::string>();
    if (!text.empty()) advice[text].push_back(static_cast<int>(r));
  }
  for (const auto& [text, ranks] : advice) {
    findings.push_back({Finding::Level::note, "binding",
                        fmt::format("rank{} {}", ranks.size() > 1 ? "s" : "", comm::format_ranks(ranks)), text});
  }
}

void check_memory(const std::vector<Json>& facts, std::vector<Finding>& findings) {
  std::vector<int> short_of;
  std::int64_t least = 0;
  for (std::size_t r = 0; r < facts.size(); ++r) {
    const auto share = facts[r].at("memory_available").get<std::int64_t>() / facts[r].at("local_size").get<std::int64_t>();
    least = r == 0 ? share : std::min(least, share);
    if (share < kLeastMemory) short_of.push_back(static_cast<int>(r));
  }
  const auto text = fmt::format("at least {} of host memory available per rank", format_bytes(static_cast<double>(least)));
  if (short_of.empty()) {
    findings.push_back({Finding::Level::fine, "memory", text, ""});
  } else {
    findings.push_back(
        {Finding::Level::problem, "memory",
         fmt::format("{}; too little on rank{} {}", text, short_of.size() > 1 ? "s" : "", comm::format_ranks(short_of)),
         "ask for more memory per node (sbatch --mem), start fewer ranks per node, or look "
         "for left-over processes"});
  }
}

}  // namespace

Json gather_facts(const comm::Session& session, c10::Device device) {
  const auto share = device::cpu_share();
  const auto threads = device::plan_threads(share, session.core_sharers(), session.local_size());
  Json libraries = Json::object();
  dl_iterate_phdr(note_library, &libraries);
  Json variables = Json::object();
  for (const char* name : kVariables) {
    if (const char* value = std::getenv(name)) variables[name] = value;
  }
  return {{"rank", session.rank()},
          {"host", session.hostname()},
          {"node", session.node()},
          {"local_size", session.local_size()},
          {"cpus", device::format_cpu_list(share.cpus)},
          {"cores", share.cores},
          {"threads", threads.threads},
          {"threads_reason", threads.reason},
          {"threads_advice", threads.advice},
          {"memory_available", device::host_memory_available()},
          {"qft", std::string(version())},
          {"mpi", comm::Session::library_version()},
          {"torch", device::library_version()},
          {"cpu", device::describe(c10::kCPU)},
          {"device", device.is_cpu() ? "cpu" : device::describe(device)},
          {"device_name", device.str()},
          {"libraries", libraries},
          {"variables", variables}};
}

void compare_facts(const std::vector<Json>& facts, std::vector<Finding>& findings) {
  compare_table(facts, findings);
  for (const auto name : kLibraries) {
    compare_nested(facts, "libraries", name,
                   "nodes load different files: fine if they are copies, else check LD_LIBRARY_PATH on each node", findings);
  }
  for (const char* name : kVariables) {
    compare_nested(facts, "variables", name, "export it alike on all nodes (mpirun -x NAME, sbatch --export)", findings);
  }
  check_threads(facts, findings);
  check_memory(facts, findings);
}

std::string format_ranks_table(const std::vector<Json>& facts) {
  constexpr std::size_t kMostRows = 64;
  auto text = fmt::format("{:>5}  {:<20} {:>4}  {:<16} {:>7}  {:>10}  {}\n", "rank", "host", "node", "cpus", "threads", "memory",
                          "device");
  for (std::size_t r = 0; r < std::min(facts.size(), kMostRows); ++r) {
    const auto& f = facts[r];
    text += fmt::format("{:>5}  {:<20} {:>4}  {:<16} {:>7}  {:>10}  {}\n", r, f.at("host").get<std::string>(),
                        f.at("node").get<int>(), f.at("cpus").get<std::string>(), f.at("threads").get<int>(),
                        format_bytes(static_cast<double>(f.at("memory_available").get<std::int64_t>())),
                        f.at("device_name").get<std::string>());
  }
  if (facts.size() > kMostRows) text += fmt::format("... and {} ranks more\n", facts.size() - kMostRows);
  return text;
}

}  // namespace qft::job
