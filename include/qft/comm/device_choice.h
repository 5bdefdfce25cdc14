// Chooses the device on which each rank of a job computes.
#pragma once

#include "qft/comm/session.h"

#include <string_view>

#include <c10/core/Device.h>

namespace qft::comm {

/// Chooses this rank's device for `wish` (device::parse_device) and makes it current. Collective. All ranks take one kind: if a
/// rank cannot use its wish, or the kind that others use, all ranks throw ConfigError with node and reason. Ranks of a node take
/// their visible devices in the order of their local ranks; a task to which the launcher shows a single device takes that one. If
/// two ranks would share a device, all ranks throw ConfigError, unless the device may be shared (DeviceFacts::shareable).
/// Afterwards Session::sharers_of(device) returns the number of sharers.
c10::Device choose_device(Session& session, std::string_view wish);

}  // namespace qft::comm
