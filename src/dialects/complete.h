// Completes a configuration after its settings are stored.
#pragma once

#include "config_names.h"

namespace qft::dialects {

/// Adds the folders that ms-swift would choose, notes the defaults that differ from those of the settings' tool, and imports the
/// files of launchers. Reads files.
void complete(RunConfig& config, const Translation& translation, Purpose purpose);

}  // namespace qft::dialects
