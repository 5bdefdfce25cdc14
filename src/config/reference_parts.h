// What the man pages and the completion know of a program.
#pragma once

#include "qft/config/bound_field.h"
#include "qft/config/reference.h"

#include <string>
#include <string_view>
#include <vector>

namespace qft::config {

/// Returns "train" for "qft train"; empty for the command that runs without a word.
std::string_view word_of(const ProgramSpec& program, const CommandSpec& spec);
/// Returns the topics of `PROGRAM help` that are neither a command nor a key: man, bash, keys.
std::vector<std::string_view> topics_of(const ProgramSpec& program);
/// True if the command accepts the key.
bool accepts_key(const CommandSpec& spec, const BoundField& key);
/// Returns the keys that the program's commands accept, in the order of the help. They refer to `defaults`.
std::vector<BoundField> keys_of(const ProgramSpec& program, RunConfig& defaults);

}  // namespace qft::config
