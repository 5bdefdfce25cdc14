// Sorts the words of a command line into program options and keys.
#pragma once

#include "qft/config/dialects.h"

#include <string>
#include <string_view>
#include <vector>

#include <boost/program_options/options_description.hpp>

namespace qft::config {

struct Arguments {
  std::vector<std::string> program;  // the program's own options with their values, for Boost.Program_options
  std::vector<std::string> rest;     // in order: "--key=value" for each key in option form; all other words unchanged
};

/// Sorts the arguments. Keys may be written --key value, --key=value, --key alone (true) or --no_key (false), with dashes or
/// underscores. Keys with list values take several words, which become one "[...]". Throws ConfigError for an option that is
/// neither in `options` nor a key of qft or of `dialects`, and for a key without a value.
Arguments sort_options(const std::vector<std::string>& arguments, const boost::program_options::options_description& options,
                       std::string_view program, const Dialects& dialects);

/// True if the word ends in .yaml, .yml or .json.
bool is_run_file(std::string_view argument);

}  // namespace qft::config
