// Reference texts that are made of the tables behind --help: man pages, a completion for bash and the page of all keys.
#pragma once

#include "qft/config/command_line.h"

#include <span>
#include <string>
#include <vector>

namespace qft::config {

/// A program with its commands, as the reference texts describe it.
struct ProgramSpec {
  std::string name;                    // "qft"
  std::string summary;                 // one sentence
  std::vector<CommandSpec> commands;   // "qft train" ...; a command that runs without a word has the program's name
  const Dialects* dialects = nullptr;  // explains keys in `PROGRAM help KEY`; nullptr: the program does not explain keys
};

/// Returns the program's man page of section 1, in the macros of man(7).
std::string man_page(const ProgramSpec& program);
/// Returns a script that completes the program's command line in bash 4.0 or newer: commands, options, keys (--key and key=),
/// and values from lists. Everything else completes as a file.
std::string bash_completion(const ProgramSpec& program);
/// Returns share/doc/qft/keys.md: for each key of a run file its default, its values, its help and the programs that read it.
std::string keys_page();

/// Returns a line "  TOPIC  help" for each topic of `PROGRAM help` except the commands.
std::string list_topics(const ProgramSpec& program);
/// Returns the texts for `PROGRAM help TOPICS...`, one after another: the --help of a command, the man page, the completion, the
/// page of all keys, or the explanation of a key. Throws ConfigError for an unknown topic, with the nearest one.
std::string help_on(std::span<const std::string> topics, const ProgramSpec& program);

}  // namespace qft::config
