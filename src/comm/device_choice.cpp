#include "qft/comm/device_choice.h"

#include "qft/comm/exchange.h"
#include "qft/core/error.h"
#include "qft/core/log.h"
#include "qft/device/backends.h"
#include "qft/device/device.h"

#include <algorithm>
#include <string>
#include <vector>

#include <fmt/format.h>

namespace qft::comm {
namespace {

/// Returns why this process uses no device of `kind`.
std::string reason_against(const std::string& kind) {
  const device::BackendEntry* entry = device::find_backend_entry(kind);
  return entry == nullptr ? "unknown here" : entry->why;
}

/// Returns the kind that all ranks take.
std::string agreed_kind(Session& session, const device::DeviceWish& wish) {
  std::string mine;
  agreed(session.world(), [&] { mine = device::kind_for(wish); });
  const auto kinds = all_gather_strings(session.world(), mine);
  const auto other = std::ranges::find_if(kinds, [](const std::string& kind) { return kind != "cpu"; });
  if (other == kinds.end()) return mine;
  // With `auto` on differing nodes, the ranks without the device report why.
  std::string against;
  if (mine != *other)
    against = fmt::format("{} cannot use {}, which other ranks use: {}; repair that node, leave it out, or set use_cpu: true",
                          session.hostname(), *other, reason_against(*other));
  all_agree(session.world(), against, kExitUsage);
  return mine;
}

std::vector<std::string> uuids_of(const std::string& kind) {
  const device::BackendEntry& entry = *device::find_backend_entry(kind);
  std::vector<std::string> uuids;
  for (int i = 0; i < entry.count; ++i) uuids.push_back(entry.backend->facts(i).uuid);
  return uuids;
}

/// Returns how many ranks of the node take this rank's device.
int sharers_of(Session& session, const std::string& uuid) {
  const auto taken = all_gather_strings(session.node_group(), uuid);
  return static_cast<int>(std::ranges::count(taken, uuid));
}

}  // namespace

c10::Device choose_device(Session& session, std::string_view text) {
  device::DeviceWish wish;
  agreed(session.world(), [&] { wish = device::parse_device(text); });
  const std::string kind = agreed_kind(session, wish);
  if (session.rank() == 0)
    for (const std::string& text : device::backend_warnings()) log::warn("{}", text);
  if (kind == "cpu") return c10::kCPU;
  const auto uuids = uuids_of(kind);
  const int count = static_cast<int>(uuids.size());
  const int index = wish.index.value_or(session.local_rank() % count);
  const std::string& mine = uuids[static_cast<std::size_t>(index)];
  const int sharers = sharers_of(session, mine);
  std::string refusal = device::obstacle_of(kind, index);
  const auto type = device::find_backend_entry(kind)->backend->type();
  const device::DeviceFacts& facts = device::facts_of(c10::Device(type, static_cast<c10::DeviceIndex>(index)));
  if (!refusal.empty())
    refusal = fmt::format("{}: {}", session.hostname(), refusal);
  else if (sharers > 1 && !facts.shareable)
    refusal = fmt::format("{}: {} of {} ranks would share one {} device ({}); this rank sees {}: start one rank per device{}{}",
                          session.hostname(), sharers, session.local_size(), kind, mine, count,
                          facts.sharing.empty() ? "" : ", or ", facts.sharing);
  all_agree(session.world(), refusal, kExitUsage);
  const c10::Device device = device::use_device(kind, index);
  session.set_device_sharers(sharers);
  return device;
}

}  // namespace qft::comm
