// Which device each rank of a job computes on.
#pragma once

#include "qft/comm/session.h"

#include <string_view>

#include <c10/core/Device.h>

namespace qft::comm {

/// The device of this rank for `wish` (device::parse_device), made the current one. Collective. All ranks take one kind: where a
/// rank cannot use what others use, or its own, all throw ConfigError with node and reason. Ranks of a node take the devices that
/// they see in the order of their local ranks; a task that a launcher shows one device takes that. Where two ranks would share a
/// device, all throw ConfigError, unless that device may be shared (DeviceFacts::shareable). From then
/// on Session::sharers_of(device) tells how many of them do.
c10::Device choose_device(Session& session, std::string_view wish);

}  // namespace qft::comm
