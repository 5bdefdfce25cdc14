// Communicators for buffers of a device.
#pragma once

#include "qft/comm/communicator.h"

#include <cstdint>
#include <memory>
#include <string>

#include <c10/core/Device.h>

namespace qft::comm {

/// The ranks of `host` for buffers on `device`: on the CPU MPI (or self); elsewhere the library of collectives that the device's
/// back end names, such as NCCL (self for one rank). Collective. Throws Error on all ranks where a rank cannot use that library.
/// A device's operations wait on the device, not on the host, and start in the order of their calls: where two ranks both send
/// first and receive then, neither arrives (NCCL's contract).
std::unique_ptr<Communicator> make_device_communicator(Communicator& host, c10::Device device, std::string name);

/// Memory that a group of `ranks` takes on `device`; 0 on the CPU.
std::int64_t device_group_bytes(c10::Device device, int ranks);

/// A group of one, for buffers on `device`.
std::unique_ptr<Communicator> make_self_communicator(std::string name, c10::Device device);

}  // namespace qft::comm
