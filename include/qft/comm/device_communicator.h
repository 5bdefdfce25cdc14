// Communicators for buffers of a device.
#pragma once

#include "qft/comm/communicator.h"

#include <cstdint>
#include <memory>
#include <string>

#include <c10/core/Device.h>

namespace qft::comm {

/// Makes a communicator of `host`'s ranks for buffers on `device`. On the CPU: MPI (self for one rank). On other devices: the
/// library of collectives that the device's back end names, such as NCCL (self for one rank). Collective. All ranks throw Error
/// if one cannot use that library. Device operations wait on the device, not on the host, and start in the order of their calls.
/// So two ranks that both send before they receive deadlock (NCCL's contract).
std::unique_ptr<Communicator> make_device_communicator(Communicator& host, c10::Device device, std::string name);

/// Returns the memory that a group of `ranks` ranks takes on `device`; 0 on the CPU.
std::int64_t device_group_bytes(c10::Device device, int ranks);

/// Makes a group of one rank, for buffers on `device`.
std::unique_ptr<Communicator> make_self_communicator(std::string name, c10::Device device);

}  // namespace qft::comm
