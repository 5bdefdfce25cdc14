// Measures the rate between each pair of nodes, and which interface carried the bytes.
#include "qft/comm/bandwidth.h"
#include "qft/comm/device_communicator.h"
#include "qft/core/units.h"

#include <algorithm>

#include "interfaces.h"
#include "probe.h"

namespace qft::check {
namespace {

constexpr double kMeasureSeconds = 0.15, kLeastSeconds = 0.03, kAllSeconds = 3.0;
constexpr double kSlowPair = 0.5;                         // of the other pairs' median
constexpr double kPairProblem = 0.5, kPairWarning = 0.8;  // of a described rate
constexpr double kGigabitBytes = 0.125e9;
constexpr std::size_t kMostTold = 6;

std::string rate_words(double bytes_per_second) {
  return fmt::format("{}/s", format_bytes(bytes_per_second));
}

Json as_json(const std::vector<comm::PairRate>& rates) {
  Json all = Json::array();
  for (const auto& r : rates) all.push_back({r.from, r.to, r.bytes_per_second});
  return all;
}

std::map<std::string, std::int64_t> rdma_sent(const std::filesystem::path& root) {
  std::map<std::string, std::int64_t> sent;
  for (const RdmaPort& port : rdma_ports(root))
    if (port.state == "ACTIVE") sent[port.name] = port.sent;
  return sent;
}

Json difference(const std::map<std::string, std::int64_t>& before, const std::map<std::string, std::int64_t>& after) {
  Json sent = Json::object();
  for (const auto& [name, bytes] : after) sent[name] = bytes - (before.count(name) != 0 ? before.at(name) : 0);
  return sent;
}

struct Rate {
  int from, to;
  double rate;
};

std::vector<Rate> rates_of(const Facts& facts, const char* key) {
  std::vector<Rate> rates;
  const Json& first = facts.of.front();
  if (first.contains(key))
    for (const Json& r : first.at(key)) rates.push_back({r[0], r[1], r[2]});
  return rates;
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values.empty() ? 0 : values[values.size() / 2];
}

/// Returns the interface that sent most of the measurement's bytes, and its rate in bytes per second (0: unknown).
std::pair<std::string, double> main_route(const Json& mine) {
  std::string name;
  std::int64_t most = 0;
  for (const auto& [interface, bytes] : mine.at("sent").items())
    if (bytes.get<std::int64_t>() > most) most = bytes, name = interface;
  for (const Json& json : mine.at("interfaces"))
    if (const Interface i = interface_of(json); i.name == name) return {name, static_cast<double>(i.megabits) * 1e6 / 8};
  return {name, 0};
}

std::int64_t total(const Json& sent) {
  std::int64_t sum = 0;
  for (const auto& [name, bytes] : sent.items()) sum += bytes.get<std::int64_t>();
  return sum;
}

/// True if RDMA carried more than a tenth of the bytes. RDMA bypasses the interfaces' counters, which then only show other
/// programs' noise.
bool went_by_rdma(const Json& mine, const char* key) {
  return total(mine.at(key)) > total(mine.at("sent")) / 10;
}

/// Reports slow pairs. One or two slow pairs are cables; if all pairs of a node are slow, the node is at fault.
void tell_slow(const Facts& facts, const std::vector<Rate>& all, const std::vector<Rate>& slow, double usual, const char* what,
               Judgement& out) {
  const auto leaders = facts.leaders();
  const auto rank_of = [&](int node) { return leaders.at(static_cast<std::size_t>(node)); };
  const auto host_of = [&](int node) { return facts.places[static_cast<std::size_t>(rank_of(node))].host; };
  std::map<int, std::size_t> degree, sending, receiving;
  for (const Rate& r : slow) ++degree[r.from], ++degree[r.to], ++sending[r.from], ++receiving[r.to];
  const std::size_t others = leaders.size() - 1;
  std::vector<int> nodes;
  // Nodes that are slow with every other node, in one direction or both, unless all pairs are slow.
  for (const auto& [node, count] : degree)
    if ((sending[node] == others || receiving[node] == others) && others > 1 && slow.size() < all.size())
      nodes.push_back(rank_of(node));
  std::string text;
  for (std::size_t i = 0; i < std::min(slow.size(), kMostTold); ++i)
    text += fmt::format("{}{} to {} {}", i > 0 ? ", " : "", host_of(slow[i].from), host_of(slow[i].to), rate_words(slow[i].rate));
  if (slow.size() > kMostTold) text += fmt::format(" and {} more", slow.size() - kMostTold);
  const std::string whose = nodes.empty() ? "" : fmt::format("{} is slow with every other node: ", facts.where(nodes));
  out.fail(fmt::format("{}{}{}; between the others {}", what, whose, text, rate_words(usual)), nodes);
}

void judge_rates(const Facts& facts, const char* key, const char* what, Judgement& out) {
  const auto rates = rates_of(facts, key);
  if (rates.empty()) return;
  std::vector<double> values;
  for (const Rate& r : rates) values.push_back(r.rate);
  // Median of the upper half: in a small job a slow node spoils most pairs.
  std::sort(values.begin(), values.end());
  const double usual = median({values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2), values.end()});
  std::vector<Rate> slow;
  for (const Rate& r : rates)
    if (r.rate < kSlowPair * usual) slow.push_back(r);
  if (!slow.empty()) tell_slow(facts, rates, slow, usual, what, out);
  const auto [interface, link] = main_route(facts.of.front());
  const double best = values.back(), wanted = facts.options.expected.network_bytes_per_second;
  const auto of_machine = [&](double part) { return wanted > 0 && best < part * wanted; };
  const bool by_rdma = went_by_rdma(facts.of.front(), std::string_view(key) == "pairs" ? "rdma" : "device_rdma");
  const auto of_link = [&](double part) { return wanted == 0 && !by_rdma && link > 0 && best < part * link; };
  const std::string least = fmt::format("{}{} between the slowest two nodes, {} between the fastest", what,
                                        rate_words(values.front()), rate_words(best));
  if (of_machine(kPairProblem) || of_machine(kPairWarning))
    (of_machine(kPairProblem)
         ? out.fail(fmt::format("{}: '{}' says {}", least, facts.options.expected.machine, rate_words(wanted)))
         : out.warn(fmt::format("{}: '{}' says {}", least, facts.options.expected.machine, rate_words(wanted))));
  else if (of_link(kLinkProblem) && best < kOneStream)
    out.fail(fmt::format("{}: {} has {}", least, interface, rate_words(link)));
  else if (wanted == 0 && best < kGigabitBytes)
    out.fail(fmt::format("{}: not faster than Gigabit Ethernet", least), {},
             "look for a faster network (mpirun --mca btl_tcp_if_include, UCX_NET_DEVICES, NCCL_SOCKET_IFNAME); if there is "
             "none, say so with --machine FILE (network_gb_s)");
  else if (of_link(kLinkWarning))
    out.warn(fmt::format("{}: {} has {}, but one TCP connection rarely uses half of that", least, interface, rate_words(link)),
             {},
             "use RDMA if available (pml ucx), or several connections (mpirun --mca btl_tcp_links 4; NCCL_NSOCKS_PERTHREAD=4)");
  else if (slow.empty())
    out.fine(least);
}

}  // namespace

Json gather_pairs(Context& context) {
  comm::Session& session = context.session;
  if (session.node_count() == 1) return Json::object();
  const bool leads = session.local_rank() == 0;
  const auto leaders = session.world().host().split(leads ? 0 : 1, session.rank(), "nodes");
  std::unique_ptr<comm::Communicator> on_device;
  const c10::Device device = context.options.device;
  if (!device.is_cpu() && leads) on_device = comm::make_device_communicator(*leaders, device, "nodes");
  if (!leads) return Json::object();
  const auto rounds = static_cast<double>(comm::pair_rounds(leaders->size()).size());
  const double seconds = std::clamp(kAllSeconds / rounds / 2, kLeastSeconds, kMeasureSeconds);
  const auto& root = context.options.root;
  const auto sent = sent_bytes(root), rdma = rdma_sent(root);
  Json mine;
  mine["pairs"] = as_json(comm::measure_pairs(*leaders, c10::kCPU, seconds));
  mine["sent"] = difference(sent, sent_bytes(root));
  mine["rdma"] = difference(rdma, rdma_sent(root));
  if (on_device) {
    mine["device_pairs"] = as_json(comm::measure_pairs(*on_device, device, seconds));
    mine["device_rdma"] = difference(rdma, rdma_sent(root));
  }
  mine["interfaces"] = Json::array();
  for (const Interface& i : interfaces()) mine["interfaces"].push_back(to_json(i));
  if (session.rank() != 0) mine.erase("pairs"), mine.erase("device_pairs");  // the same on all ranks
  return mine;
}

void judge_route(const Facts& facts, Judgement& out) {
  if (facts.nodes() == 1) return;
  const auto leaders = facts.leaders();
  if (std::all_of(leaders.begin(), leaders.end(),
                  [&](int rank) { return went_by_rdma(facts.of[static_cast<std::size_t>(rank)], "rdma"); }))
    return out.fine("messages went by RDMA");
  std::vector<int> slower;
  const auto faster_of = [&](int rank) -> std::optional<Interface> {
    const Json& mine = facts.of[static_cast<std::size_t>(rank)];
    const auto [name, rate] = main_route(mine);
    std::optional<Interface> best;
    for (const Json& json : mine.at("interfaces"))
      if (const Interface i = interface_of(json); i.up && !i.loopback && !i.address.empty() && rate > 0 &&
                                                  static_cast<double>(i.megabits) * 1e6 / 8 > 1.5 * rate &&
                                                  (!best || i.megabits > best->megabits))
        best = i;
    return best;
  };
  for (const int rank : leaders)
    if (faster_of(rank)) slower.push_back(rank);
  const Groups groups = group(leaders, [&](int rank) { return main_route(facts.of[static_cast<std::size_t>(rank)]).first; });
  const std::string text = groups.size() == 1 ? fmt::format("messages went by {}", groups.front().first)
                                              : fmt::format("messages went by {}", describe(facts, groups));
  if (slower.empty()) return out.fine(text);
  const Groups faster = group(slower, [&](int rank) {
    const auto i = *faster_of(rank);
    return fmt::format("{} ({}, {} Mb/s)", i.name, i.address, i.megabits);
  });
  const auto told = fmt::format("{}, but faster interfaces exist: {}", text, describe(facts, faster));
  // An interface on only some nodes, such as a bridge or a storage network, does not lead to the other nodes.
  slower.size() == leaders.size() ? out.fail(told) : out.warn(told);
}

void judge_rdma_use(const Facts& facts, Judgement& out) {
  if (facts.nodes() == 1) return;
  std::vector<int> has, unused;
  for (const int rank : facts.leaders()) {
    const Json& mine = facts.of[static_cast<std::size_t>(rank)];
    if (mine.at("rdma").empty()) continue;
    has.push_back(rank);
    const Json& used = mine.contains("device_rdma") ? mine.at("device_rdma") : mine.at("rdma");
    if (total(used) < total(mine.at("sent")) / 10) unused.push_back(rank);
  }
  if (has.empty()) return;
  if (unused.empty())
    out.fine("messages go by RDMA");
  else
    out.warn(fmt::format("there are active RDMA ports on {}, but messages go by TCP", facts.where(unused)), unused);
}

void judge_pairs(const Facts& facts, Judgement& out) {
  judge_rates(facts, "pairs", "", out);
  judge_rates(facts, "device_pairs", "devices: ", out);
}

}  // namespace qft::check
