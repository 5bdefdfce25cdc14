// Rotary embedding and its scalings in config.json. Private to model.
#pragma once

#include "qft/model/config.h"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "config_reader.h"

namespace qft::model {

/// What an architecture takes where the file lacks it.
struct RopeDefaults {
  double theta = 10000.0;
  std::optional<double> partial;  ///< RopeConfig's; absent: whole heads are rotated, whatever the file says, as in transformers
};

/// `max_positions`: max_position_embeddings, which grows to those that a scaling reaches. Where two places of the file say one
/// thing, transformers' order decides, and `notes` gets a line where they differ.
RopeConfig read_rope(const ConfigReader& config, std::int64_t& max_positions, const RopeDefaults& defaults,
                     std::vector<std::string>& notes);

}  // namespace qft::model
