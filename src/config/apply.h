// Applies settings to a RunConfig.
#pragma once

#include "qft/config/dialects.h"
#include "qft/config/run_config.h"
#include "qft/config/setting.h"

#include <string>
#include <string_view>
#include <vector>

namespace qft::config {

/// Returns the top-level keys of a parsed file. Throws ConfigError if the document is not a mapping.
std::vector<Setting> settings_of(const Value& document, std::string_view file);

/// Parses "key=value" or "--key=value" from the command line; the key may have dashes or underscores. Throws ConfigError for
/// another form.
Setting override_setting(const std::string& text);

/// Applies the settings in order (the later wins). Records keys, claims and notes in `config`. Throws ConfigError for unknown
/// keys, for wrong values, and for different values of one key under two names. `dialects` has more names to suggest.
void apply_settings(RunConfig& config, Translation translation, const Dialects& dialects, Purpose purpose = Purpose::any,
                    bool expand_paths = true);

}  // namespace qft::config
