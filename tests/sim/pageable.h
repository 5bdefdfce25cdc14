// Counts copies that are slow on a real device.
#pragma once

#include <cstdint>

namespace qft::sim {

/// Returns the bytes copied so far between the device and host memory that is not pinned.
std::int64_t pageable_bytes();

}  // namespace qft::sim
