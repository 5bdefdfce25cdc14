// Rotary embedding and its scalings in config.json. Private to model.
#pragma once

#include "qft/model/config.h"

#include <cstdint>
#include <optional>

#include "config_reader.h"

namespace qft::model {

/// `max_positions`: max_position_embeddings, which grows to those that a scaling reaches. `partial`: RopeConfig's where the file
/// lacks it; absent: of an architecture that rotates whole heads, whatever the file says, as in transformers.
RopeConfig read_rope(const ConfigReader& config, std::int64_t& max_positions, std::optional<double> partial);

}  // namespace qft::model
