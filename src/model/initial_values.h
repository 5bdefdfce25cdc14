// Initial values that any layout has alike: counter-based from (seed, name, index) alone. Private to model.
#pragma once

#include "qft/model/weights.h"

#include <cstdint>

namespace qft::model {

/// This rank's part of a parameter whose elements are uniform in [-bound, bound).
void fill_uniform(const ParamSpec& param, std::uint64_t seed, double bound, const Shard& dst);
/// The same of normal elements, with mean 0 and this deviation (Box and Muller 1958).
void fill_normal(const ParamSpec& param, std::uint64_t seed, double deviation, const Shard& dst);

}  // namespace qft::model
