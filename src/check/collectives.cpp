// Checks results and speed of collectives: over host memory, and between devices.
#include "qft/comm/bandwidth.h"
#include "qft/comm/device_communicator.h"
#include "qft/comm/mpi_setting.h"
#include "qft/core/units.h"

#include <algorithm>
#include <limits>

#include "interfaces.h"
#include "probe.h"

namespace qft::check {
namespace {

// Lower than any usable network, so that a busy machine does not count as broken.
constexpr double kSlowMicroseconds = 1000, kBrokenMicroseconds = 100'000;
constexpr double kSlowRate = 0.1e9, kBrokenRate = 0.001e9;  // bus bandwidth in bytes per second
constexpr double kGroupProblem = 0.4, kGroupWarning = 0.7;
constexpr double kOneSize = 0.05, kLongest = 0.5;  // seconds

/// Measures all-reduces of growing size until one would take too long.
std::vector<comm::BandwidthRow> measure(comm::Communicator& comm, c10::Device device, std::size_t largest) {
  std::vector<comm::BandwidthRow> rows;
  for (const auto bytes : comm::bandwidth_sizes(largest)) {
    rows.push_back(comm::measure(comm, device, comm::OpKind::all_reduce, bytes, kOneSize));
    if (rows.back().microseconds * 8 > kLongest * 1e6) break;
  }
  return rows;
}

Json measure_group(comm::Communicator& comm, c10::Device device, std::size_t largest) {
  std::string wrong;
  for (const auto& text : comm::verify_collectives(comm, device)) wrong += (wrong.empty() ? "" : "; ") + text;
  Json rows = Json::array();
  if (comm.size() > 1)
    for (const auto& row : measure(comm, device, largest)) rows.push_back(to_json(row));
  return {{"by", std::string(comm.backend())}, {"wrong", wrong}, {"rows", rows}};
}

/// Calls `judge` with each measured group of ranks, as seen by rank 0.
template <class F>
void for_each_group(const Facts& facts, F&& judge) {
  for (std::size_t i = 0; i < facts.at(0, "groups").size(); ++i) judge(i, facts.at(0, "groups").at(i));
}

}  // namespace

Json gather_collectives(Context& context) {
  const Options& options = context.options;
  comm::Communicator& world = context.session.world();
  Json groups = Json::array();
  groups.push_back(measure_group(world, c10::kCPU, options.largest_message));
  if (!options.device.is_cpu()) {
    const auto devices = comm::make_device_communicator(world, options.device, "device");
    groups.push_back(measure_group(*devices, options.device, options.largest_message));
  }
  std::int64_t megabits = 0;
  for (const Interface& i :
       candidates(interfaces(), comm::mpi_setting("btl_tcp_if_include"), comm::mpi_setting("btl_tcp_if_exclude")))
    megabits = std::max(megabits, i.megabits);
  return {{"groups", groups}, {"megabits", megabits}};
}

/// Returns the bytes per second of each node's fastest interface, on the slowest node; 0 if a node does not know its rate.
double slowest_link(const Facts& facts) {
  std::int64_t least = std::numeric_limits<std::int64_t>::max();
  for (const int rank : facts.leaders()) least = std::min(least, facts.at(rank, "megabits").get<std::int64_t>());
  return static_cast<double>(least) * 1e6 / 8;
}

void judge_values(const Facts& facts, Judgement& out) {
  for_each_group(facts, [&](std::size_t i, const Json& group_facts) {
    std::vector<int> bad;
    const auto wrong = [&](int rank) { return facts.at(rank, "groups").at(i).at("wrong").get<std::string>(); };
    for (const int rank : facts.all())
      if (!wrong(rank).empty()) bad.push_back(rank);
    const std::string by = group_facts.at("by");
    if (bad.empty())
      out.fine(fmt::format("{}: right on all ranks", by));
    else
      out.fail(fmt::format("{}: {}", by, describe(facts, group(bad, wrong))), bad);
  });
}

void judge_latency(const Facts& facts, Judgement& out) {
  for_each_group(facts, [&](std::size_t, const Json& group_facts) {
    if (group_facts.at("rows").empty()) return;
    const double latency = group_facts.at("rows").front().at("microseconds");
    const auto text =
        fmt::format("{}: an all-reduce of 8 bytes takes {:.1f} us", group_facts.at("by").get<std::string>(), latency);
    if (latency > kBrokenMicroseconds)
      out.fail(text);
    else if (latency > kSlowMicroseconds)
      out.warn(text);
    else
      out.fine(text);
  });
}

void judge_all_reduce(const Facts& facts, Judgement& out) {
  const ExpectedLinks& expected = facts.options.expected;
  for_each_group(facts, [&](std::size_t, const Json& group_facts) {
    if (group_facts.at("rows").empty()) return;
    const Json& largest = group_facts.at("rows").back();
    const double rate = largest.at("bus_gb_s").get<double>() * 1e9;
    const bool known = facts.nodes() > 1 && expected.network_bytes_per_second > 0;
    const double link = facts.nodes() > 1 && !known ? slowest_link(facts) : 0;
    const double broken = known      ? kGroupProblem * expected.network_bytes_per_second
                          : link > 0 ? std::max(kBrokenRate, std::min(kLinkProblem * link, kOneStream))
                                     : kBrokenRate;
    const double slow = known ? kGroupWarning * expected.network_bytes_per_second : link > 0 ? kLinkWarning * link : kSlowRate;
    const auto text =
        fmt::format("{}: {}/s of bus bandwidth with {}{}", group_facts.at("by").get<std::string>(), format_bytes(rate),
                    format_bytes(largest.at("bytes").get<double>()),
                    known ? fmt::format("; '{}' says {}/s", expected.machine, format_bytes(expected.network_bytes_per_second))
                    : link > 0 ? fmt::format("; the slowest node's fastest link has {}/s", format_bytes(link))
                               : "");
    if (rate < broken)
      out.fail(text);
    else if (rate < slow)
      out.warn(text);
    else
      out.fine(text);
  });
}

}  // namespace qft::check
