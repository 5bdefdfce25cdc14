// Translates names of other tools to qft's keys.
#pragma once

#include <string_view>
#include <vector>

#include "config_names.h"

namespace qft::dialects {

/// Translates the settings. Keys without effect leave a note, numbers of ranks a claim. Throws ConfigError for refused keys, and
/// for keys with two meanings if nothing decides between them.
Translation translate(std::vector<Setting> settings, Purpose purpose);

}  // namespace qft::dialects
