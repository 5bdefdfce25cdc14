// Parts of --help that the man pages, the completion and the page of keys are made of too, and what these know of a program.
#pragma once

#include "qft/config/bound_field.h"
#include "qft/config/command_line.h"
#include "qft/config/reference.h"

#include <string>
#include <string_view>
#include <vector>

namespace qft::config {

/// Returns the default as the help shows it; "none" if the key is not set. `bound` must refer to a fresh RunConfig.
std::string default_of(const BoundField& bound);
/// Describes the allowed values, and names values that training does not implement.
std::string values_of(const BoundField& bound);
/// Returns the values that training implements, in the order of the help; empty for keys without a list of values.
std::vector<std::string_view> implemented_values(const BoundField& bound);
/// Returns the programs that read the key: "qft train, qft plan".
std::string readers_of(const BoundField& bound);
/// True if the programs of `purpose` read the key; always true for `any`.
bool reads_key(Purpose purpose, const BoundField& bound);

/// Returns the line "qft train [RUN.yaml] ... [options]".
std::string usage_of(const CommandSpec& spec);
/// Returns the options of a command and the options that every command has.
boost::program_options::options_description visible_options(const CommandSpec& spec);
/// Returns all that --help prints.
std::string help_of(const CommandSpec& spec);

/// Returns "train" for "qft train"; empty for the command that runs without a word.
std::string_view word_of(const ProgramSpec& program, const CommandSpec& spec);
/// Returns the topics of `PROGRAM help` that are neither a command nor a key: man, bash, keys.
std::vector<std::string_view> topics_of(const ProgramSpec& program);
/// True if the command accepts the key.
bool accepts_key(const CommandSpec& spec, const BoundField& key);
/// Returns the keys that the program's commands accept, in the order of the help. They refer to `defaults`.
std::vector<BoundField> keys_of(const ProgramSpec& program, RunConfig& defaults);

}  // namespace qft::config
