// A sweep: the runs that one run file gives with several values of some keys.
#pragma once

#include "qft/config/command_line.h"

#include <filesystem>
#include <span>
#include <string>
#include <vector>

namespace qft::config {

/// One run of a sweep.
struct SweepRun {
  std::string name;                    ///< of its folder: "learning_rate=1e-4+lora_rank=8"
  std::vector<std::string> overrides;  ///< "key=value" of each swept key
  std::filesystem::path dir;           ///< its output_dir: the folder `name` in the output_dir of the sweep
  CommandLine line;                    ///< as if the run was typed alone
};

/// All combinations of `sweeps`, each "key=a,b,c" or "key=[a,b,c]" (YAML: quotes and brackets keep commas), over what `line`
/// says; the last key changes fastest. Loads the configuration of every run, so that a wrong value is found before the first one
/// starts. Throws ConfigError: a key that training does not read, that is given twice, or also as an override, or that each run
/// has of its own; an empty or repeated value; what load_run_config() throws, with the run's overrides.
std::vector<SweepRun> plan_sweep(const CommandLine& line, std::span<const std::string> sweeps);

/// The run of this number, from 1 on. Throws ConfigError if there is none.
const SweepRun& sweep_run_of(const std::vector<SweepRun>& runs, long long index);

}  // namespace qft::config
