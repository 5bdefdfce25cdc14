// Finds the interfaces that MPI and NCCL may use, and checks that they are alike on all nodes.
#include "qft/comm/mpi_setting.h"

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <limits>
#include <set>

#include "interfaces.h"
#include "probe.h"
#include <fmt/ranges.h>

namespace qft::check {
namespace {

constexpr std::int64_t kGigabit = 1000, kFast = 10'000;  // megabits a second
constexpr int kUsualMtu = 1500;

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

std::string speed_words(std::int64_t megabits) {
  if (megabits == 0) return "unknown speed";
  return megabits % 1000 == 0 ? fmt::format("{} Gb/s", megabits / 1000) : fmt::format("{} Mb/s", megabits);
}

std::vector<Interface> interfaces_at(const Facts& facts, int rank) {
  std::vector<Interface> all;
  for (const Json& json : facts.at(rank, "interfaces")) all.push_back(interface_of(json));
  return all;
}

std::vector<Interface> for_mpi(const Facts& facts, int rank) {
  return candidates(interfaces_at(facts, rank), facts.at(rank, "include"), facts.at(rank, "exclude"));
}

/// Returns the Gb/s of the node's fastest active RDMA port; 0 without one.
double fastest_port(const Facts& facts, int rank) {
  double best = 0;
  for (const Json& p : facts.at(rank, "ports"))
    if (p.at("state") == "ACTIVE") best = std::max(best, p.at("gigabits").get<double>());
  return best;
}

/// A network that every node has, with each node's interface.
struct Network {
  std::string name;
  std::vector<std::pair<int, Interface>> ends;  ///< by leader
  const Interface& of(int rank) const {
    return std::find_if(ends.begin(), ends.end(), [&](const auto& end) { return end.first == rank; })->second;
  }
  std::int64_t megabits() const {  // of the slowest end with a known rate
    std::int64_t least = 0;
    for (const auto& [rank, i] : ends)
      if (i.megabits > 0 && (least == 0 || i.megabits < least)) least = i.megabits;
    return least;
  }
};

/// True for a network that is separate on each node, such as a container bridge: two nodes have the same address in it.
bool is_of_each_node(const Network& n) {
  std::set<std::string> addresses;
  for (const auto& [rank, i] : n.ends) addresses.insert(i.address);
  return addresses.size() < n.ends.size();
}

std::vector<Network> common_networks(const Facts& facts) {
  std::vector<Network> networks;
  const auto leaders = facts.leaders();
  for (const int rank : leaders)
    for (const Interface& i : for_mpi(facts, rank)) {
      auto at = std::find_if(networks.begin(), networks.end(), [&](const Network& n) { return n.name == i.network(); });
      if (at == networks.end()) at = networks.insert(networks.end(), {i.network(), {}});
      if (at->ends.empty() || at->ends.back().first != rank) at->ends.emplace_back(rank, i);
    }
  std::erase_if(networks, [&](const Network& n) { return n.ends.size() < leaders.size() || is_of_each_node(n); });
  return networks;
}

std::string words_of(const Interface& i) {
  return fmt::format("{} ({}/{}, {}, MTU {})", i.name, i.address, i.prefix, speed_words(i.megabits), i.mtu);
}

}  // namespace

Json gather_links(Context& context) {
  const auto& root = context.options.root;
  Json all = Json::array(), ports = Json::array();
  for (const Interface& i : interfaces()) all.push_back(to_json(i));
  for (const RdmaPort& p : rdma_ports(root))
    ports.push_back({{"name", p.name}, {"state", p.state}, {"gigabits", p.gigabits}, {"layer", p.layer}});
  std::ifstream version(root / "proc/driver/nvidia/version");
  const std::string driver((std::istreambuf_iterator<char>(version)), {});
  const bool direct = std::filesystem::exists(root / "sys/module/nvidia_peermem") ||
                      std::filesystem::exists(root / "sys/module/nv_peer_mem") ||
                      driver.find("Open Kernel Module") != std::string::npos;
  return {{"interfaces", all},
          {"include", comm::mpi_setting("btl_tcp_if_include")},
          {"exclude", comm::mpi_setting("btl_tcp_if_exclude")},
          {"nccl", variable("NCCL_SOCKET_IFNAME")},
          {"nccl_ib_disable", variable("NCCL_IB_DISABLE")},
          {"ports", ports},
          {"gpus", !context.options.gpus.gpus.empty()},
          {"gpu_direct", direct}};
}

void judge_interfaces(const Facts& facts, Judgement& out) {
  if (facts.nodes() == 1) return;
  std::vector<int> without;
  for (const int rank : facts.leaders())
    if (for_mpi(facts, rank).empty()) without.push_back(rank);
  const std::string include = facts.at(0, "include");
  if (!without.empty())
    return out.fail(fmt::format("no interface with an address {}on {}",
                                include.empty() ? "" : fmt::format("fits btl_tcp_if_include={} ", include), facts.where(without)),
                    without);
  const auto networks = common_networks(facts);
  if (networks.empty()) {
    const Groups groups = group(facts.leaders(), [&](int rank) {
      std::vector<std::string> parts;
      for (const Interface& i : for_mpi(facts, rank)) parts.push_back(words_of(i));
      return fmt::format("{}", fmt::join(parts, ", "));
    });
    return out.warn(fmt::format("no network is common to all nodes: {}", describe(facts, groups)));
  }
  for (const Network& n : networks) {
    const Interface& first = n.ends.front().second;
    out.fine(fmt::format("{}: {} ({}, MTU {})", n.name, first.name, speed_words(n.megabits()), first.mtu));
  }
}

void judge_addresses(const Facts& facts, Judgement& out) {
  if (facts.nodes() == 1) return;
  std::map<std::string, std::vector<int>> users;
  std::map<std::string, std::string> names;
  for (const int rank : facts.leaders())
    for (const Interface& i : for_mpi(facts, rank)) users[i.address].push_back(rank), names[i.address] = i.name;
  bool unique = true;
  for (const auto& [address, ranks] : users) {
    if (ranks.size() == 1) continue;
    unique = false;
    out.warn(fmt::format("{} has the same address, {}, on {}: a bridge of containers, or a mistake", names[address], address,
                         facts.where(ranks)));
  }
  if (unique) out.fine("each node has its own addresses");
}

void judge_link_speed(const Facts& facts, Judgement& out) {
  if (facts.nodes() == 1) return;
  std::int64_t fastest = 0;
  const auto networks = common_networks(facts);
  for (const Network& n : networks) {
    std::int64_t most = 0;
    for (const auto& [rank, i] : n.ends) most = std::max(most, i.megabits);
    std::vector<int> slow;
    for (const auto& [rank, i] : n.ends)
      if (i.megabits > 0 && i.megabits < most) slow.push_back(rank);
    const Groups groups =
        group(facts.leaders(), [&](int rank) { return fmt::format("{} {}", n.of(rank).name, speed_words(n.of(rank).megabits)); });
    if (!slow.empty()) out.fail(fmt::format("{}: {}", n.name, describe(facts, groups)), slow);
    fastest = std::max(fastest, n.megabits());
  }
  // InfiniBand may have no addresses; the pairs probe measures its rate.
  double rdma = std::numeric_limits<double>::infinity();
  for (const int rank : facts.leaders()) rdma = std::min(rdma, fastest_port(facts, rank));
  const bool declared = facts.options.expected.network_bytes_per_second > 0;
  if (rdma * kGigabit > static_cast<double>(std::max(fastest, kGigabit)))
    out.fine(fmt::format("RDMA ports of {} Gb/s on all nodes", rdma));
  else if (fastest > 0 && fastest <= kGigabit && !declared)
    out.fail(fmt::format("the fastest network that all nodes share has {}", speed_words(fastest)));
  else if (fastest > 0)
    out.fine(speed_words(fastest));
}

void judge_mtu(const Facts& facts, Judgement& out) {
  if (facts.nodes() == 1) return;
  for (const Network& n : common_networks(facts)) {
    const Groups groups = group(facts.leaders(), [&](int rank) { return std::to_string(n.of(rank).mtu); });
    if (groups.size() > 1)
      out.fail(fmt::format("{}: {}", n.name, describe(facts, groups)), minority(groups));
    else if (n.of(0).mtu <= kUsualMtu && n.megabits() >= kFast)
      out.warn(
          fmt::format("{}: {} on a network of {}: each packet costs CPU time", n.name, n.of(0).mtu, speed_words(n.megabits())),
          {}, "if the switches allow it, use ip link set IF mtu 9000 on all nodes; RDMA does not need it");
    else
      out.fine(fmt::format("{}: {} on all nodes", n.name, n.of(0).mtu));
  }
}

void judge_nccl_interface(const Facts& facts, Judgement& out) {
  const auto leaders = facts.leaders();
  const bool asked = std::any_of(leaders.begin(), leaders.end(), [&](int rank) { return facts.at(rank, "nccl") != ""; });
  if (facts.nodes() == 1 || (!asked && facts.options.device.is_cpu())) return;
  std::vector<int> without, elsewhere;
  const auto networks = common_networks(facts);
  for (const int rank : leaders) {
    const auto fit = nccl_candidates(interfaces_at(facts, rank), facts.at(rank, "nccl"));
    const bool common = std::any_of(networks.begin(), networks.end(), [&](const Network& n) {
      return std::any_of(fit.begin(), fit.end(), [&](const Interface& i) { return i.network() == n.name; });
    });
    if (fit.empty())
      without.push_back(rank);
    else if (!common)
      elsewhere.push_back(rank);
  }
  const Groups wishes = group(without, [&](int rank) {
    return fmt::format("NCCL_SOCKET_IFNAME='{}' fits no interface", facts.at(rank, "nccl").get<std::string>());
  });
  if (!without.empty()) out.fail(describe(facts, wishes), without);
  if (!elsewhere.empty())
    out.warn(fmt::format("NCCL may not use a network that MPI uses on all nodes, on {}", facts.where(elsewhere)), elsewhere);
  if (without.empty() && elsewhere.empty()) out.fine("NCCL finds an interface in the same network on every node");
}

void judge_rdma_ports(const Facts& facts, Judgement& out) {
  const auto leaders = facts.leaders();
  double fastest = 0;
  for (const int rank : leaders) fastest = std::max(fastest, fastest_port(facts, rank));
  const bool any = std::any_of(leaders.begin(), leaders.end(), [&](int rank) { return !facts.at(rank, "ports").empty(); });
  if (!any) return;
  std::vector<int> worse;
  for (const int rank : leaders)
    if (fastest_port(facts, rank) < fastest) worse.push_back(rank);
  const Groups groups = group(leaders, [&](int rank) {
    std::vector<std::string> parts;
    for (const Json& p : facts.at(rank, "ports"))
      parts.push_back(fmt::format("{} {} {} Gb/s", p.at("name").get<std::string>(), p.at("state").get<std::string>(),
                                  p.at("gigabits").get<double>()));
    return parts.empty() ? std::string("no port") : fmt::format("{}", fmt::join(parts, ", "));
  });
  const std::string text = groups.size() == 1 ? groups.front().first : describe(facts, groups);
  if (!worse.empty())
    out.fail(text, worse);
  else if (fastest == 0)
    out.warn(fmt::format("no port is active: {}", text));
  else
    out.fine(text);
}

void judge_gpu_direct(const Facts& facts, Judgement& out) {
  std::vector<int> with, without, disabled;
  for (const int rank : facts.leaders()) {
    const Json& ports = facts.at(rank, "ports");
    const bool active = std::any_of(ports.begin(), ports.end(), [](const Json& p) { return p.at("state") == "ACTIVE"; });
    if (!facts.at(rank, "gpus").get<bool>() || !active) continue;
    with.push_back(rank);
    if (!facts.at(rank, "gpu_direct").get<bool>()) without.push_back(rank);
    if (const std::string value = facts.at(rank, "nccl_ib_disable"); !value.empty() && value != "0") disabled.push_back(rank);
  }
  if (!without.empty())
    out.warn(
        fmt::format("the RDMA cards cannot reach the GPUs' memory on {}: nvidia_peermem is not loaded", facts.where(without)),
        without);
  if (!disabled.empty())
    out.warn(fmt::format("NCCL_IB_DISABLE keeps NCCL from using the RDMA ports on {}", facts.where(disabled)), disabled,
             "unset NCCL_IB_DISABLE");
  if (!with.empty() && without.empty() && disabled.empty()) out.fine("RDMA cards reach the GPUs' memory");
}

}  // namespace qft::check
