// Copies that are slow on a real device.
#pragma once

#include <cstdint>

namespace qft::sim {

/// Bytes copied so far between the device and host memory that is not pinned.
std::int64_t pageable_bytes();

}  // namespace qft::sim
