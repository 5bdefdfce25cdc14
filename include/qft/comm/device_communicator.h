// Communicators for buffers of a device.
#pragma once

#include "qft/comm/communicator.h"

#include <memory>
#include <string>

#include <c10/core/Device.h>

namespace qft::comm {

/// The ranks of `host` for buffers on `device`: MPI (or self) on the CPU, NCCL on CUDA (self for one rank).
/// Collective. In a build without CUDA a CUDA device throws ConfigError naming the build option.
std::unique_ptr<Communicator> make_device_communicator(Communicator& host, c10::Device device, std::string name);

}  // namespace qft::comm
