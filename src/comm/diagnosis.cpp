#include "diagnosis.h"

#include <algorithm>
#include <map>
#include <tuple>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "qft/comm/session.h"

namespace qft::comm {
namespace {

constexpr double kSilenceWhenStuck = 4.0;  // seconds

using Place = std::tuple<std::string, std::uint64_t, std::string>;  // communicator, number, call

Place place_of(const Heartbeat& b) { return {b.communicator.data(), b.number, b.call.data()}; }

std::string name_of(const Heartbeat& b) { return fmt::format("rank {} on {}", b.rank, b.host.data()); }

std::string names_of(const std::vector<const Watched*>& ranks) {
  std::vector<std::string> names;
  for (const Watched* r : ranks) names.push_back(name_of(r->beat));
  return fmt::format("{}", fmt::join(names, ", "));
}

std::string describe(const Watched& r) {
  const Heartbeat& b = r.beat;
  std::string text = fmt::format("  {}: phase {}", name_of(b), b.phase.data());
  if (b.step >= 0) text += fmt::format(", {} steps done", b.step);
  if (b.finished) return text + ", finished";
  text += b.number == 0 ? ", no collective yet"
                        : fmt::format(", {} {} (number {} on '{}')", b.waiting ? "waits in" : "last collective",
                                      b.call.data(), b.number, b.communicator.data());
  return text + fmt::format("; idle {:.0f} s, last heartbeat {:.0f} s ago", r.idle_seconds, r.silent_seconds);
}

std::string report(const std::string& reason, std::span<const Watched> ranks) {
  std::string text = fmt::format("error: watchdog: {}; the job ends\n", reason);
  for (const Watched& r : ranks) text += describe(r) + "\n";
  return text;
}

/// The ranks that are not where most others are; among equally many the ones that are behind.
std::vector<const Watched*> apart(const std::vector<const Watched*>& waiting) {
  std::map<Place, std::vector<const Watched*>> groups;
  for (const Watched* r : waiting) groups[place_of(r->beat)].push_back(r);
  const auto most = std::max_element(groups.begin(), groups.end(), [](const auto& a, const auto& b) {
    return std::pair(a.second.size(), std::get<1>(a.first)) < std::pair(b.second.size(), std::get<1>(b.first));
  });
  std::vector<const Watched*> others;
  for (const auto& [place, members] : groups)
    if (place != most->first) others.insert(others.end(), members.begin(), members.end());
  return others;
}

std::string describe(const CollectiveNote& n) { return describe(n.kind, n.dtype, n.count, n.op, n.peer); }

/// The same number on the same communicator, but another operation: in words, empty if all agree. Groups of ranks may
/// have communicators of one name, so that only 'world' is compared while the job goes on.
std::string mismatch(std::span<const Watched> ranks, bool world_only) {
  std::map<std::pair<std::string, std::uint64_t>, std::map<std::string, std::vector<int>>> calls;
  for (const Watched& r : ranks)
    for (const CollectiveNote& n : r.beat.recent)
      if (n.number > 0 && (!world_only || std::string(n.communicator.data()) == "world"))
        calls[{n.communicator.data(), n.number}][describe(n)].push_back(r.beat.rank);
  for (const auto& [place, kinds] : calls) {
    if (kinds.size() < 2) continue;
    std::vector<std::string> parts;
    for (const auto& [call, members] : kinds)
      parts.push_back(fmt::format("{} on rank{} {}", call, members.size() > 1 ? "s" : "", format_ranks(members)));
    return fmt::format("the ranks call different collectives as number {} on '{}': {}", place.second, place.first,
                       fmt::join(parts, ", "));
  }
  return {};
}

std::string why_stuck(std::span<const Watched> ranks, double idle) {
  if (const std::string differ = mismatch(ranks, /*world_only=*/false); !differ.empty()) return differ;
  std::vector<const Watched*> waiting, elsewhere;
  for (const Watched& r : ranks) (r.beat.waiting && !r.beat.finished ? waiting : elsewhere).push_back(&r);
  if (waiting.empty()) return fmt::format("no rank has got anything done for {:.0f} s", idle);
  const Heartbeat& first = waiting.front()->beat;
  if (!elsewhere.empty())
    return fmt::format("{} did not come to {} on '{}', in which {} other{} wait{} for {:.0f} s", names_of(elsewhere),
                       first.call.data(), first.communicator.data(), waiting.size(), waiting.size() > 1 ? "s" : "",
                       waiting.size() > 1 ? "" : "s", idle);
  const auto culprits = apart(waiting);
  if (culprits.empty())
    return fmt::format("all ranks have waited in {} on '{}' for {:.0f} s: the network, or a rank that left it early",
                       first.call.data(), first.communicator.data(), idle);
  return fmt::format("the ranks wait in different collectives for {:.0f} s: {} {} not where the others are", idle,
                     names_of(culprits), culprits.size() > 1 ? "are" : "is");
}

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace

std::optional<std::string> diagnose(std::span<const Watched> ranks, double timeout_seconds) {
  double idle = 1e300;
  for (const Watched& r : ranks)
    if (!r.beat.finished) idle = std::min(idle, r.idle_seconds);
  const bool all_finished = idle == 1e300, stuck = !all_finished && idle > timeout_seconds;
  // Where nothing moves, a few missing heartbeats say whom it is for.
  const double patience = stuck ? std::min(kSilenceWhenStuck, timeout_seconds) : timeout_seconds;
  std::vector<const Watched*> silent;
  for (const Watched& r : ranks)
    if (!r.beat.finished && r.silent_seconds > patience) silent.push_back(&r);
  if (!silent.empty())
    return report(fmt::format("{} {} no sign of life for {:.0f} s (stopped, or the node or its network is gone)",
                              names_of(silent), silent.size() > 1 ? "show" : "shows", silent.front()->silent_seconds),
                  ranks);
  return stuck ? std::optional(report(why_stuck(ranks, idle), ranks)) : std::nullopt;
}

std::optional<std::string> diagnose_mismatch(std::span<const Watched> ranks) {
  const std::string differ = mismatch(ranks, /*world_only=*/true);
  return differ.empty() ? std::nullopt : std::optional(report(differ, ranks));
}

std::string StragglerWatch::observe(std::span<const Watched> ranks) {
  if (ranks.size() < 2) return {};
  if (marks_.empty()) {
    if (std::any_of(ranks.begin(), ranks.end(), [](const Watched& r) { return r.beat.step < 0; })) return {};
    for (const Watched& r : ranks) marks_.push_back({r.beat.step, r.beat.busy_seconds});
    return {};
  }
  std::vector<double> seconds;
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    const std::int64_t steps = ranks[i].beat.step - marks_[i].step;
    if (steps < kSteps) return {};
    seconds.push_back((ranks[i].beat.busy_seconds - marks_[i].busy_seconds) / static_cast<double>(steps));
  }
  for (std::size_t i = 0; i < ranks.size(); ++i) marks_[i] = {ranks[i].beat.step, ranks[i].beat.busy_seconds};
  const auto slowest = static_cast<std::size_t>(std::max_element(seconds.begin(), seconds.end()) - seconds.begin());
  std::vector<double> others = seconds;
  others.erase(others.begin() + static_cast<std::ptrdiff_t>(slowest));
  const double usual = median(others);
  if (seconds[slowest] < kFactor * usual || seconds[slowest] < usual + kWorthSeconds) return {};
  return fmt::format("{} takes {:.3f} s for its part of a step, the other ranks {:.3f} s (median), for {} steps and more",
                     name_of(ranks[slowest].beat), seconds[slowest], usual, kSteps);
}

}  // namespace qft::comm
