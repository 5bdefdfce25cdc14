// The words of a command line: the program's own options, and keys as people type them.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <boost/program_options/options_description.hpp>

namespace qft::config {

struct Arguments {
  std::vector<std::string> program;  // the program's own options with their values, for Boost.Program_options
  std::vector<std::string> rest;     // in order: "--key=value" for each key that was typed as an option, and all else as it is
};

/// Sorts what was typed. A key is written --key value, --key=value, --key alone (true) or --no_key (false),
/// with dashes or underscores; keys of lists take several values, which become one "[...]". Throws
/// ConfigError for an option that is neither in `options` nor a key, and for a key without its value.
Arguments sort_options(const std::vector<std::string>& arguments, const boost::program_options::options_description& options,
                       std::string_view program);

/// Whether a word names a run file: .yaml, .yml or .json.
bool is_run_file(std::string_view argument);

}  // namespace qft::config
