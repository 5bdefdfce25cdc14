// The command line of all programs: NAME [RUN.yaml] [words] [key=value | --key value ...] [options].
#pragma once

#include "qft/config/dialects.h"
#include "qft/config/run_config.h"
#include "qft/core/log.h"

#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <boost/program_options/options_description.hpp>
#include <boost/program_options/variables_map.hpp>

namespace qft::config {

/// What a program or subcommand accepts.
struct CommandSpec {
  enum class RunFile { none, optional, required };
  std::string name;     // "qft train"
  std::string summary;  // one sentence
  RunFile run_file = RunFile::none;
  Purpose purpose = Purpose::any;  // selects the keys that --help lists
  std::string words = {};          // names further words in the usage line ("CHECKPOINT..."); empty: none allowed
  std::size_t min_words = 0;       // minimum number of words
  bool machine_readable = false;   // accepts --json
  /// The program's own options, such as --ranks. --help, --version, --json and --log-level are added.
  boost::program_options::options_description options = boost::program_options::options_description("options");
  /// Known values of options, by name without dashes; "" names the words. For completion only: other values may be valid too.
  std::map<std::string, std::vector<std::string>, std::less<>> choices = {};
};

/// A parsed command line.
struct CommandLine {
  std::filesystem::path run_file;      // empty: none was given
  std::vector<std::string> overrides;  // "key=value" or "--key=value", in order
  std::vector<std::string> words;
  bool json = false;
  std::optional<log::Severity> log_level;         // --log-level; not set: the run file's log_level applies
  boost::program_options::variables_map options;  // the program's own
  const Dialects* dialects = &kOwnKeysOnly;       // translates the keys of other tools

  /// Loads the run file (or the defaults without one), applies the overrides and checks the result for `purpose`.
  RunConfig load(Purpose purpose) const { return load_run_config(run_file, overrides, purpose, *dialects); }
};

/// Parses argv[first...]. Returns nullopt after printing --help or --version to stdout (exit with 0). If the program accepts a
/// run file, it accepts keys too: key=value, --key value, --key (true), --no_key, with dashes or underscores, and several values
/// for a list. The first argument that ends in .yaml, .yml or .json is the run file. In programs that use models, a folder that
/// holds an adapter or a model sets adapter_name_or_path or model_name_or_path. The rest are words. `dialects` adds the keys of
/// other tools and must outlive the result. Throws ConfigError.
std::optional<CommandLine> parse_command_line(const CommandSpec& spec, int argc, const char* const* argv, int first = 1,
                                              const Dialects& dialects = kOwnKeysOnly);

}  // namespace qft::config
