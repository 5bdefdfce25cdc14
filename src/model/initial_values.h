// Initial values that do not depend on the layout: counter-based from (seed, name, index) alone. Private to model.
#pragma once

#include "qft/model/weights.h"

#include <cstdint>

namespace qft::model {

/// Fills this rank's part of a parameter with values uniform in [-bound, bound).
void fill_uniform(const ParamSpec& param, std::uint64_t seed, double bound, const Shard& dst);
/// Fills this rank's part with normal values, mean 0 and this deviation (Box and Muller 1958).
void fill_normal(const ParamSpec& param, std::uint64_t seed, double deviation, const Shard& dst);

}  // namespace qft::model
