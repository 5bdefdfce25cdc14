// The help texts for the keys of a run file.
#pragma once

#include "qft/config/dialects.h"
#include "qft/config/run_config.h"

#include <string>
#include <string_view>
#include <vector>

namespace qft::config {

/// Returns the help for the keys that the programs of `purpose` read (`any`: all keys): a minimal run file and its keys, then all
/// other keys by group, each with its default, values and one line of help, then the keys that are not implemented.
std::string help_text(Purpose purpose);
/// Explains a key of qft or of another tool: its values, its default, the programs that read it, and why qft refuses or ignores
/// it. Wraps lines to the terminal's width. Throws ConfigError with the nearest name for an unknown key.
std::string describe_key(std::string_view name, const Dialects& dialects = kOwnKeysOnly);
/// True if the programs of `purpose` read the key; always true for `any`.
bool reads_key(Purpose purpose, std::string_view key);
/// Returns the minimal run file of help_text(); empty for `any`.
std::string_view sample_run_file(Purpose purpose);
/// Returns the key's values that training implements, in the order of its help.
std::vector<std::string_view> implemented_values(std::string_view key);

}  // namespace qft::config
