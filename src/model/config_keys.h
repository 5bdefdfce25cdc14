// The known keys of config.json, by kind of architecture. Private to model.
#pragma once

#include <string>
#include <vector>

#include "architecture.h"
#include "config_reader.h"

namespace qft::model {

/// Throws Error, naming the key, if a key changes the computation and is not implemented. Adds a line to `notes` with the keys
/// that have a value but are not read. `text`: the decoder's configuration; `whole` itself unless the model is part of a larger
/// one.
void check_config_keys(const ConfigReader& whole, const ConfigReader& text, const Architecture& arch,
                       std::vector<std::string>& notes);

}  // namespace qft::model
