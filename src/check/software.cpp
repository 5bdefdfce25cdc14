// Checks versions, builds, libraries and variables that must be the same on every node.
#include "qft/comm/collective_library.h"
#include "qft/core/hash.h"
#include "qft/core/units.h"
#include "qft/core/version.h"
#include "qft/device/backends.h"
#include "qft/device/device.h"

#include <array>
#include <cstdlib>
#include <link.h>
#include <string_view>

#include "probe.h"

namespace qft::check {
namespace {

// Libraries that must match over the ranks, and variables that change a rank's behaviour.
constexpr std::array<std::string_view, 5> kLibraries = {"libtorch_cpu.so", "libmpi.so", "libhdf5", "libnccl.so", "libc10.so"};
constexpr std::array<const char*, 13> kVariables = {
    "OMP_NUM_THREADS", "CUDA_VISIBLE_DEVICES", "QFT_CHECK_COLLECTIVES", "NCCL_SOCKET_IFNAME",
    "NCCL_IB_DISABLE", "NCCL_IB_HCA",          "NCCL_P2P_DISABLE",      "NCCL_ALGO",
    "NCCL_PROTO",      "NCCL_NET_GDR_LEVEL",   "UCX_NET_DEVICES",       "MALLOC_MMAP_THRESHOLD_",
    "LD_PRELOAD"};

int note_library(dl_phdr_info* info, std::size_t, void* result) {
  const std::filesystem::path path = info->dlpi_name;
  const auto name = path.filename().string();
  for (const auto wanted : kLibraries)
    if (name.starts_with(wanted)) (*static_cast<Json*>(result))[std::string(wanted)] = path.string();
  return 0;
}

std::string nccl_version(c10::Device device) {
  const auto* library = device::part_of<comm::CollectiveLibrary>(device, "comm");
  if (library == nullptr) return {};
  const std::string version = library->version();
  return version.substr(0, version.find(','));  // the probe "libraries" compares the file
}

/// Makes one verdict for each key of `section` with different values.
template <class Keys>
void compare_section(const Facts& facts, const char* section, const Keys& keys, Judgement& out) {
  bool same = true;
  for (const auto& key : keys) {
    const Groups groups = group(facts.all(), [&](int rank) {
      const Json& all = facts.at(rank, section);
      const auto found = all.find(std::string(key));
      return found == all.end() ? std::string("not set") : fmt::format("'{}'", found->template get<std::string>());
    });
    if (groups.size() == 1) continue;
    same = false;
    out.warn(fmt::format("{} differs: {}", key, describe(facts, groups)), minority(groups));
  }
  if (same) out.fine("the same on all ranks");
}

}  // namespace

Json gather_software(Context& context) {
  const c10::Device device = context.options.device;
  Json libraries = Json::object(), variables = Json::object();
  dl_iterate_phdr(note_library, &libraries);
  for (const char* name : kVariables)
    if (const char* value = std::getenv(name)) variables[name] = value;
  return {{"qft", std::string(version())},
          {"build", hash_file("/proc/self/exe").substr(0, 12)},
          {"mpi", comm::Session::library_version()},
          {"torch", device::library_version()},
          {"cuda", device.is_cpu() ? std::string() : device::backend_of(device).library_version()},
          {"nccl", nccl_version(device)},
          {"cpu", device::describe(c10::kCPU)},
          {"device", device.is_cpu() ? "cpu" : device::describe(device)},
          {"device_error", context.options.device_error},
          {"libraries", libraries},
          {"variables", variables}};
}

void judge_hosts(const Facts& facts, Judgement& out) {
  std::map<std::string, std::vector<int>> nodes;  // by host name: one rank of each node
  for (const int rank : facts.leaders()) nodes[facts.places[static_cast<std::size_t>(rank)].host].push_back(rank);
  bool unique = true;
  for (const auto& [host, ranks] : nodes) {
    if (ranks.size() == 1) continue;
    unique = false;
    out.warn(fmt::format("{} nodes have the name {}: messages cannot tell them apart", ranks.size(), host));
  }
  if (unique) out.fine(fmt::format("{} on {}", count_noun(facts.ranks(), "rank"), count_noun(facts.nodes(), "node")));
}

void judge_device(const Facts& facts, Judgement& out) {
  if (const std::string error = facts.at(0, "device_error"); !error.empty()) return out.fail(error);
  const Groups groups = group(facts.all(), [&](int rank) { return facts.at(rank, "device").get<std::string>(); });
  if (groups.size() == 1)
    out.fine(groups.front().first);
  else
    out.warn(describe(facts, groups), minority(groups),
             "mixed devices run at the pace of the slowest: ask for one kind (sbatch --constraint)");
}

void judge_libraries(const Facts& facts, Judgement& out) {
  compare_section(facts, "libraries", kLibraries, out);
}

void judge_variables(const Facts& facts, Judgement& out) {
  compare_section(facts, "variables", kVariables, out);
}

}  // namespace qft::check
