// Sweeps: several runs from one run file, with different values for some keys.
#pragma once

#include "qft/config/command_line.h"

#include <filesystem>
#include <span>
#include <string>
#include <vector>

namespace qft::config {

/// One run of a sweep.
struct SweepRun {
  std::string name;                    ///< its folder's name: "learning_rate=1e-4+lora_rank=8"
  std::vector<std::string> overrides;  ///< "key=value" of each swept key
  std::filesystem::path dir;           ///< its output_dir: the folder `name` in the sweep's output_dir
  CommandLine line;                    ///< the command line that starts this run alone
};

/// Returns one run for each combination of the values in `sweeps`, on top of `line`. Each sweep is "key=a,b,c" or "key=[a,b,c]"
/// (YAML: quotes and brackets protect commas). The last key changes fastest. Loads every run's configuration, so that a wrong
/// value fails before the first run starts. Throws ConfigError for a key that training does not read, that is swept twice or is
/// also an override, or that differs for every run anyway (output_dir ...); for an empty or repeated value; and with
/// load_run_config()'s errors, which then name the run's overrides.
std::vector<SweepRun> plan_sweep(const CommandLine& line, std::span<const std::string> sweeps);

/// Returns run number `index`, counted from 1. Throws ConfigError if there is no such run.
const SweepRun& sweep_run_of(const std::vector<SweepRun>& runs, long long index);

}  // namespace qft::config
