// The command line that all programs share: NAME [RUN.yaml] [words] [key=value | --key value ...] [options].
#pragma once

#include "qft/config/run_config.h"
#include "qft/core/log.h"

#include <filesystem>
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
  Purpose purpose = Purpose::any;  // whose keys --help lists
  std::string words = {};          // what further words mean, for the usage line ("CHECKPOINT..."); empty: none allowed
  std::size_t least_words = 0;     // fewer are an error
  bool machine_readable = false;   // accepts --json
  /// Options of its own, such as --ranks; --help, --version, --json and --log-level are added.
  boost::program_options::options_description options = boost::program_options::options_description("options");
};

/// What was asked for.
struct CommandLine {
  std::filesystem::path run_file;      // empty: none was given
  std::vector<std::string> overrides;  // "key=value" or "--key=value", in order
  std::vector<std::string> words;
  bool json = false;
  std::optional<log::Severity> log_level;         // --log-level; else the run file's log_level counts
  boost::program_options::variables_map options;  // the program's own

  /// The run file with the overrides, checked for `purpose`; without a run file the defaults with the overrides.
  RunConfig load(Purpose purpose) const { return load_run_config(run_file, overrides, purpose); }
};

/// Parses argv[first...]. Returns nullopt where --help or --version was printed to stdout (exit with 0). Where a run file is
/// accepted, keys are too: key=value, --key value, --key (true), --no_key, dashes or underscores, several values for a list. The
/// first argument that ends in .yaml, .yml or .json is the run file; a folder with an adapter or a model stands for
/// adapter_name_or_path or model_name_or_path, in programs that use models; the rest are words. Throws ConfigError: what is
/// wrong, what is expected.
std::optional<CommandLine> parse_command_line(const CommandSpec& spec, int argc, const char* const* argv, int first = 1);

}  // namespace qft::config
