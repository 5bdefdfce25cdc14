// How far this rank's device is with the collectives that its host has called, for a watchdog: hosts run ahead of their devices,
// so the last call says nothing of where a device waits.
#pragma once

#include "qft/comm/collective_note.h"

#include <array>
#include <cstdint>
#include <string>

namespace qft::comm {

/// Those of one group of devices. Numbers are those of CollectiveNote, alike on all ranks of the group; 0: none yet.
struct DeviceCollectives {
  std::uint64_t group = 0;     ///< the same on all ranks of the group; 0: no entry
  std::uint64_t called = 0;    ///< the last that the host has called
  std::uint64_t reached = 0;   ///< the last that the device has come to: all work before it is done
  std::uint64_t finished = 0;  ///< the last that the device has finished
  std::int32_t ranks = 0;      ///< of the group
  CollectiveNote next;         ///< the first that it has not finished; number 0: none

  bool open() const { return next.number > 0; }
};
/// Of this process's groups, those with something open first. Any thread.
using AllDeviceCollectives = std::array<DeviceCollectives, 3>;
AllDeviceCollectives device_collectives();

/// What the library says of a group of this process in which something has failed; empty: nothing has. Any thread.
std::string device_failure();

/// Ends what is under way in all groups of this process, so that its devices become idle. They are of no use afterwards: the
/// process must end. May hang where a driver does. Any thread.
void abort_device_groups();

}  // namespace qft::comm
