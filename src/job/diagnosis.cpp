#include "diagnosis.h"

#include "qft/comm/session.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace qft::job {
namespace {

/// Returns "rank 2 on node7".
std::string name_of(const Heartbeat& b) {
  return fmt::format("rank {} on {}", b.rank, b.host.data());
}

std::string names_of(const std::vector<const Watched*>& ranks) {
  std::vector<std::string> names;
  for (const Watched* r : ranks) names.push_back(name_of(r->beat));
  return fmt::format("{}", fmt::join(names, ", "));
}

std::string describe(const comm::CollectiveNote& n) {
  return describe(n.kind, n.dtype, n.count, n.op, n.peer);
}

using Ranks = std::vector<const Watched*>;

/// The first collective of a group that a device is stuck in, and the progress of the group's ranks.
struct Stall {
  comm::CollectiveNote call;
  Ranks in;              ///< their devices are in it
  Ranks absent;          ///< their hosts did not call it
  Ranks late;            ///< their devices have not reached it
  Ranks finished;        ///< their devices have finished it
  std::size_t left = 0;  ///< ranks that have left the group
};

struct Member {
  const Watched* rank = nullptr;
  const comm::DeviceCollectives* at = nullptr;
  bool inside() const { return at->open() && at->reached >= at->next.number; }
};

Stall stall_of(const std::vector<Member>& members) {
  Stall stall;
  for (const Member& m : members)
    if (m.inside() && (stall.call.number == 0 || m.at->next.number < stall.call.number)) stall.call = m.at->next;
  stall.left = static_cast<std::size_t>(members.front().at->ranks) - members.size();
  const std::uint64_t number = stall.call.number;
  for (const Member& m : members) {
    Ranks& where = m.at->finished >= number ? stall.finished
                   : m.at->called < number  ? stall.absent
                   : m.at->reached < number ? stall.late
                                            : stall.in;
    where.push_back(m.rank);
  }
  return stall;
}

std::vector<Stall> stalls_of(std::span<const Watched> ranks) {
  std::map<std::uint64_t, std::vector<Member>> groups;
  for (const Watched& r : ranks)
    for (const comm::DeviceCollectives& d : r.beat.devices)
      if (d.group != 0) groups[d.group].push_back({&r, &d});
  std::vector<Stall> stalls;
  for (const auto& [group, members] : groups)
    if (std::ranges::any_of(members, &Member::inside)) stalls.push_back(stall_of(members));
  return stalls;
}

std::string waiting_for(const Stall& s, double idle) {
  return fmt::format("{}, number {} on '{}', in which the device{} of {} wait{} for {:.0f} s", describe(s.call), s.call.number,
                     s.call.communicator.data(), s.in.size() > 1 ? "s" : "", names_of(s.in), s.in.size() > 1 ? "" : "s", idle);
}

std::string in_words(const Stall& s, double idle) {
  if (!s.absent.empty()) return fmt::format("{} did not call {}", names_of(s.absent), waiting_for(s, idle));
  if (!s.late.empty())
    return fmt::format("the device{} of {} {} not reached {}: earlier work does not end", s.late.size() > 1 ? "s" : "",
                       names_of(s.late), s.late.size() > 1 ? "have" : "has", waiting_for(s, idle));
  if (!s.finished.empty()) return fmt::format("{} have finished {}", names_of(s.finished), waiting_for(s, idle));
  if (s.left > 0) return fmt::format("{} of its ranks left the group without {}", s.left, waiting_for(s, idle));
  return fmt::format(
      "the devices of all its ranks have been in {}, number {} on '{}', for {:.0f} s: check the network between them, or their "
      "library (its own log says more, NCCL's by NCCL_DEBUG=INFO)",
      describe(s.call), s.call.number, s.call.communicator.data(), idle);
}

/// If devices are stuck in a collective, describes which hosts did not call it or which devices did not reach it; empty if no
/// device is in a collective. Does not name a rank if another collective holds up its device.
std::string device_stall(std::span<const Watched> ranks, double idle_seconds) {
  std::vector<Stall> stalls = stalls_of(ranks);
  if (stalls.empty()) return {};
  // A rank that is in one group's collective is late for another group's because of that.
  std::set<const Watched*> held_up;
  for (const Stall& s : stalls) held_up.insert(s.in.begin(), s.in.end());
  const auto has_culprit = [&](const Stall& s) {
    const auto free = [&](const Watched* r) { return !held_up.contains(r); };
    return std::ranges::any_of(s.absent, free) || std::ranges::any_of(s.late, free);
  };
  const auto all_inside = [](const Stall& s) { return s.absent.empty() && s.late.empty(); };
  auto chosen = std::ranges::find_if(stalls, has_culprit);
  if (chosen == stalls.end()) chosen = std::ranges::find_if(stalls, all_inside);
  if (chosen == stalls.end()) chosen = stalls.begin();
  if (has_culprit(*chosen))
    for (Ranks* where : {&chosen->absent, &chosen->late})
      std::erase_if(*where, [&](const Watched* r) { return held_up.contains(r); });
  return in_words(*chosen, idle_seconds);
}

constexpr double kSilenceWhenStuck = 4.0;  // seconds

using Place = std::tuple<std::string, std::uint64_t, std::string>;  // communicator, number, call

Place place_of(const Heartbeat& b) {
  return {b.communicator.data(), b.number, b.call.data()};
}

std::string line_of(const Watched& r) {
  const Heartbeat& b = r.beat;
  std::string text = fmt::format("  {}: phase {}", name_of(b), b.phase.data());
  if (b.step >= 0) text += fmt::format(", {} steps done", b.step);
  if (b.finished) return text + ", finished";
  if (b.waiting == activity::Wait::device) text += ", waits for its device";
  text += b.number == 0
              ? ", no collective yet"
              : fmt::format(", {} {} (number {} on '{}')", b.waiting == activity::Wait::ranks ? "waits in" : "last collective",
                            b.call.data(), b.number, b.communicator.data());
  for (const comm::DeviceCollectives& d : b.devices)
    if (d.open())
      text += fmt::format(", its device {} {} (number {} on '{}')", d.reached >= d.next.number ? "is in" : "has not reached",
                          describe(d.next), d.next.number, d.next.communicator.data());
  if (b.failure[0] != '\0') text += fmt::format(", its device's collectives failed: {}", b.failure.data());
  return text + fmt::format("; idle {:.0f} s, last heartbeat {:.0f} s ago", r.idle_seconds, r.silent_seconds);
}

std::string report(const std::string& reason, std::span<const Watched> ranks) {
  std::string text = fmt::format("error: watchdog: {}; the job ends\n", reason);
  for (const Watched& r : ranks) text += line_of(r) + "\n";
  return text;
}

/// Returns the ranks outside the collective that most ranks wait in; in a tie, the ranks that are behind.
std::vector<const Watched*> outliers(const std::vector<const Watched*>& waiting) {
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

/// Describes ranks that call different operations as the same number on the same communicator; empty if all agree. Groups of
/// ranks may have communicators of the same name, so only 'world' is compared while the job runs.
std::string mismatch(std::span<const Watched> ranks, bool world_only) {
  std::map<std::pair<std::string, std::uint64_t>, std::map<std::string, std::vector<int>>> calls;
  for (const Watched& r : ranks)
    for (const comm::CollectiveNote& n : r.beat.recent)
      if (n.number > 0 && (!world_only || std::string(n.communicator.data()) == "world"))
        calls[{n.communicator.data(), n.number}][describe(n)].push_back(r.beat.rank);
  for (const auto& [place, kinds] : calls) {
    if (kinds.size() < 2) continue;
    std::vector<std::string> parts;
    for (const auto& [call, members] : kinds)
      parts.push_back(fmt::format("{} on rank{} {}", call, members.size() > 1 ? "s" : "", comm::format_ranks(members)));
    return fmt::format("the ranks call different collectives as number {} on '{}': {}", place.second, place.first,
                       fmt::join(parts, ", "));
  }
  return {};
}

/// Returns the rank with the first failed device collective; null if none failed.
const Watched* first_failed(std::span<const Watched> ranks) {
  const Watched* first = nullptr;
  for (const Watched& r : ranks)
    if (r.beat.failure[0] != '\0' && (first == nullptr || r.failed_seconds > first->failed_seconds)) first = &r;
  return first;
}

std::string failure_of(const Watched& r) {
  return fmt::format("the collectives of {}'s device have failed: {}", name_of(r.beat), r.beat.failure.data());
}

std::string why_stuck(std::span<const Watched> ranks, double idle) {
  if (const Watched* failed = first_failed(ranks)) return failure_of(*failed);
  if (const std::string differ = mismatch(ranks, /*world_only=*/false); !differ.empty()) return differ;
  if (const std::string stall = device_stall(ranks, idle); !stall.empty()) return stall;
  std::vector<const Watched*> waiting, elsewhere;
  for (const Watched& r : ranks)
    (r.beat.waiting == activity::Wait::ranks && !r.beat.finished ? waiting : elsewhere).push_back(&r);
  if (waiting.empty()) return fmt::format("no rank has made progress for {:.0f} s", idle);
  const Heartbeat& first = waiting.front()->beat;
  if (!elsewhere.empty())
    return fmt::format("{} did not reach {} on '{}', in which {} other{} wait{} for {:.0f} s", names_of(elsewhere),
                       first.call.data(), first.communicator.data(), waiting.size(), waiting.size() > 1 ? "s" : "",
                       waiting.size() > 1 ? "" : "s", idle);
  const auto culprits = outliers(waiting);
  if (culprits.empty())
    return fmt::format("all ranks have waited in {} on '{}' for {:.0f} s: check the network, or a rank that left it early",
                       first.call.data(), first.communicator.data(), idle);
  return fmt::format("the ranks wait in different collectives for {:.0f} s: {} {} not where the others are", idle,
                     names_of(culprits), culprits.size() > 1 ? "are" : "is");
}

std::optional<double> median(const std::vector<double>& sorted) {
  return sorted.empty() ? std::nullopt : std::optional(sorted[sorted.size() / 2]);
}

/// Median of all values except one that equals `own`.
std::optional<double> median_without(const std::vector<double>& sorted, double own) {
  if (sorted.size() < 2) return std::nullopt;
  const auto at = static_cast<std::size_t>(std::lower_bound(sorted.begin(), sorted.end(), own) - sorted.begin());
  const std::size_t middle = (sorted.size() - 1) / 2;
  return sorted[middle < at ? middle : middle + 1];
}

}  // namespace

std::optional<std::string> diagnose(std::span<const Watched> ranks, double timeout_seconds) {
  double idle = 1e300;
  for (const Watched& r : ranks)
    if (!r.beat.finished) idle = std::min(idle, r.idle_seconds);
  const bool all_finished = idle == 1e300, stuck = !all_finished && idle > timeout_seconds;
  // If nothing moves, a few missing heartbeats show which rank is silent.
  const double limit = stuck ? std::min(kSilenceWhenStuck, timeout_seconds) : timeout_seconds;
  std::vector<const Watched*> silent;
  for (const Watched& r : ranks)
    if (!r.beat.finished && r.silent_seconds > limit) silent.push_back(&r);
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

std::optional<std::string> diagnose_failure(std::span<const Watched> ranks, double grace_seconds) {
  const Watched* first = first_failed(ranks);
  if (first == nullptr || first->failed_seconds < grace_seconds) return std::nullopt;
  return report(failure_of(*first), ranks);
}

std::vector<StragglerWatch::Share> StragglerWatch::shares(std::span<const Watched> ranks) const {
  std::vector<Share> all;
  std::vector<double> paces, works;  // seconds per unit of work
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    const Heartbeat& b = ranks[i].beat;
    const std::int64_t steps = b.step - ranks_[i].step;
    if (steps < kSteps) return {};
    const auto n = static_cast<double>(steps);
    all.push_back({steps, (b.busy_seconds - ranks_[i].seconds) / n, (b.work - ranks_[i].work) / n});
    works.push_back(all.back().work);
    if (all.back().work > 0) paces.push_back(all.back().seconds / all.back().work);
  }
  std::sort(paces.begin(), paces.end());
  std::sort(works.begin(), works.end());
  for (Share& s : all) {
    const auto pace = s.work > 0 ? median_without(paces, s.seconds / s.work) : median(paces);
    s.usual = pace.value_or(0.0) * std::max(s.work, median_without(works, s.work).value_or(0.0));
  }
  return all;
}

std::string StragglerWatch::observe(std::span<const Watched> ranks) {
  if (ranks_.size() != ranks.size()) {
    if (ranks.size() < 2 || std::any_of(ranks.begin(), ranks.end(), [](const Watched& r) { return r.beat.step < 0; })) return {};
    ranks_.clear();
    for (const Watched& r : ranks) ranks_.push_back({r.beat.step, r.beat.busy_seconds, r.beat.work});
    return {};
  }
  // Another run of the same process counts its steps from the start.
  for (std::size_t i = 0; i < ranks.size(); ++i)
    if (ranks[i].beat.step < ranks_[i].step) {
      ranks_.clear();
      return {};
    }
  const auto all = shares(ranks);
  std::string text;
  for (std::size_t i = 0; i < all.size(); ++i) {
    const Heartbeat& b = ranks[i].beat;
    Rank& rank = ranks_[i];
    const bool again = rank.slow && all[i].slow();
    rank = {b.step, b.busy_seconds, b.work, all[i].slow(), rank.named_at};
    if (!again || (rank.named_at >= 0 && b.step < rank.named_at + kQuietSteps)) continue;
    rank.named_at = b.step;
    text += fmt::format(
        "{}{} is {:.1f} times as slow as the others: its part of a step takes {:.3f} s, at their pace {:.3f} s (median, "
        "for the same work, {} steps)",
        text.empty() ? "" : "; ", name_of(b), all[i].seconds / all[i].usual, all[i].seconds, all[i].usual, all[i].steps);
  }
  return text;
}

}  // namespace qft::job
