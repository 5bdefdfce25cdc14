#include "device_stall.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <set>

#include <fmt/format.h>

namespace qft::job {
namespace {

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

}  // namespace

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

}  // namespace qft::job
