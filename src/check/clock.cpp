// Measures the differences between the nodes' clocks by round trips.
#include "qft/comm/exchange.h"

#include <algorithm>
#include <cmath>
#include <ctime>

#include "probe.h"

namespace qft::check {
namespace {

constexpr double kNoticed = 1.0, kRefused = 60.0;  // seconds
constexpr int kRounds = 5;
constexpr int kTag = 12;

double wall_clock() {
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

/// Returns how far `peer`'s clock is ahead, from the fastest of several round trips.
double ask(comm::Communicator& world, int peer) {
  double best = 1e300, offset = 0;
  for (int i = 0; i < kRounds; ++i) {
    double theirs = 0;
    const double before = wall_clock();
    world.send(&before, 1, DType::f64, peer, kTag);
    world.recv(&theirs, 1, DType::f64, peer, kTag);
    const double after = wall_clock();
    if (after - before < best) best = after - before, offset = theirs - (before + after) / 2;
  }
  return offset;
}

}  // namespace

Json gather_clock(Context& context) {
  comm::Session& session = context.session;
  comm::Communicator& world = session.world().host();
  const auto leads = comm::all_gather_value(world, session.local_rank() == 0 ? 1 : 0);
  Json ahead = Json::array();  // by node, on rank 0
  for (int peer = 0; peer < session.size(); ++peer) {
    if (leads[static_cast<std::size_t>(peer)] == 0) continue;
    if (session.rank() == 0) ahead.push_back(peer == 0 ? 0.0 : ask(world, peer));
    for (int i = 0; session.rank() == peer && peer != 0 && i < kRounds; ++i) {
      double theirs = 0;
      world.recv(&theirs, 1, DType::f64, 0, kTag);
      theirs = wall_clock();
      world.send(&theirs, 1, DType::f64, 0, kTag);
    }
  }
  return {{"ahead", ahead}};
}

void judge_clock(const Facts& facts, Judgement& out) {
  if (facts.nodes() == 1) return;
  auto ahead = facts.at(0, "ahead").get<std::vector<double>>();
  auto sorted = ahead;
  std::sort(sorted.begin(), sorted.end());
  const double usual = sorted[(sorted.size() - 1) / 2];
  const auto leaders = facts.leaders();
  double worst = 0;
  std::vector<int> off;
  for (std::size_t n = 0; n < ahead.size(); ++n) {
    const double by = ahead[n] - usual;
    if (std::abs(by) > kNoticed) off.push_back(leaders[n]);
    worst = std::max(worst, std::abs(by));
  }
  if (off.empty()) return out.fine(fmt::format("within {:.3f} s of each other", sorted.back() - sorted.front()));
  const bool blame = leaders.size() > 2;  // with two nodes it is unknown which one is right
  const Groups groups = group(leaders, [&](int rank) {
    const auto node = static_cast<std::size_t>(std::find(leaders.begin(), leaders.end(), rank) - leaders.begin());
    return fmt::format("{:+.1f} s", ahead[node]);
  });
  const std::string text = fmt::format("relative to rank 0: {}", describe(facts, groups));
  const std::span<const int> nodes = blame ? std::span<const int>(off) : std::span<const int>();
  if (worst > kRefused)
    out.fail(
        fmt::format(
            "{}: tickets, certificates and batch system messages will be refused, and files will seem to come from the future",
            text),
        nodes);
  else
    out.warn(fmt::format("{}: times in logs and of files cannot be compared", text), nodes);
}

}  // namespace qft::check
