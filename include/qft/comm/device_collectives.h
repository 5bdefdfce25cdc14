// Progress of this rank's device through the collectives that its host has called, for a watchdog. Hosts run ahead of their
// devices, so the last call does not show which collective a device waits in.
#pragma once

#include "qft/comm/communicator.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

namespace qft::comm {

/// "all_reduce(sum, F32, 1024)"
std::string describe(OpKind kind, DType dtype, std::size_t count, ReduceOp op, int peer);

/// A collective that this process started, in a form that ranks can compare.
struct CollectiveNote {
  std::uint64_t number = 0;  ///< index on its communicator, from 1; 0: none
  std::uint64_t count = 0;   ///< 0 for calls in which the count may differ between ranks
  std::array<char, 24> communicator{};
  std::int32_t peer = -1;
  OpKind kind{};
  DType dtype{};
  ReduceOp op{};
};
/// The last collectives of this process over all communicators, unordered. Thread-safe.
using RecentCollectives = std::array<CollectiveNote, 16>;
RecentCollectives recent_collectives();

/// Progress in one device group. Numbers match CollectiveNote and are the same on all ranks of the group; 0: none yet.
struct DeviceCollectives {
  std::uint64_t group = 0;     ///< the same on all ranks of the group; 0: no entry
  std::uint64_t called = 0;    ///< last collective that the host has called
  std::uint64_t reached = 0;   ///< last collective that the device has reached: all work before it is done
  std::uint64_t finished = 0;  ///< last collective that the device has finished
  std::int32_t ranks = 0;      ///< ranks in the group
  CollectiveNote next;         ///< first unfinished collective; number 0: none

  bool open() const { return next.number > 0; }
};
/// Returns the progress of this process's groups, groups with unfinished collectives first. Thread-safe.
using AllDeviceCollectives = std::array<DeviceCollectives, 3>;
AllDeviceCollectives device_collectives();

/// Returns the library's text for a failed group of this process; empty if no group failed. Thread-safe.
std::string device_failure();

/// Aborts the started operations of all groups in this process, so that its devices become idle. The groups are unusable
/// afterwards: the process must end. May hang if a driver hangs. Thread-safe.
void abort_device_groups();

}  // namespace qft::comm
