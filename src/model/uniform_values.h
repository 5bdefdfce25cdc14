// Initial values that any layout has alike. Private to model.
#pragma once

#include "qft/model/weights.h"

#include <cstdint>

namespace qft::model {

/// This rank's part of a parameter whose elements are uniform in [-bound, bound): counter-based from (seed, name, index) alone.
void fill_uniform(const ParamSpec& param, std::uint64_t seed, double bound, const Shard& dst);

}  // namespace qft::model
