// Rotary embedding and its scalings in config.json. Private to model.
#pragma once

#include "qft/model/config.h"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "config_reader.h"

namespace qft::model {

/// An architecture's defaults for keys that the file omits.
struct RopeDefaults {
  double theta = 10000.0;
  std::optional<double> partial;  ///< RopeConfig's; absent: whole heads are rotated, whatever the file says, as in transformers
};

/// Reads the rotary embedding. `max_positions`: max_position_embeddings; grows to the positions that a scaling reaches. If the
/// file gives a value in two places, transformers' order decides, and `notes` gets a line if the two differ.
RopeConfig read_rope(const ConfigReader& config, std::int64_t& max_positions, const RopeDefaults& defaults,
                     std::vector<std::string>& notes);

}  // namespace qft::model
