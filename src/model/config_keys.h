// Which keys of config.json are known, by kind of architecture. Private to model.
#pragma once

#include <string>
#include <vector>

#include "architecture.h"
#include "config_reader.h"

namespace qft::model {

/// Throws Error naming a key that changes the computation and is not implemented. `notes` gets a line that names keys with a
/// value which nobody reads. `text`: the decoder's configuration, `whole` itself where a model is not part of a larger one.
void check_config_keys(const ConfigReader& whole, const ConfigReader& text, const Architecture& arch,
                       std::vector<std::string>& notes);

}  // namespace qft::model
