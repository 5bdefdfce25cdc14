// What --help says of the keys of a run file.
#pragma once

#include "qft/config/run_config.h"

#include <string>
#include <string_view>
#include <vector>

namespace qft::config {

/// The keys that have an effect in the programs of `purpose` (`any`: all there are): first a minimal run file and what
/// its keys are, then group by group, each key with its default, its values and one line of help, then what is not implemented.
std::string help_text(Purpose purpose);
/// What a key means, ours or another tool's: its values, default, which programs read it, and why it is refused or has no effect.
/// Lines as wide as the terminal. Throws ConfigError with the nearest name if there is no such key.
std::string describe_key(std::string_view name);
/// Whether they have an effect there; true for `any`.
bool reads(Purpose purpose, std::string_view key);
/// That run file; empty for `any`.
std::string_view sample_run_file(Purpose purpose);
/// The words that the key takes in training, in the order of its help, without those that are not implemented.
std::vector<std::string_view> implemented(std::string_view key);

}  // namespace qft::config
