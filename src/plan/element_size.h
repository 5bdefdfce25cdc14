#pragma once
#include <cstdint>

#include <c10/core/ScalarType.h>

namespace qft::plan {

/// Bytes per element.
inline std::int64_t size_of(c10::ScalarType type) {
  return static_cast<std::int64_t>(c10::elementSize(type));
}

}  // namespace qft::plan
