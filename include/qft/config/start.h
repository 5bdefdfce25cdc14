// How a program starts with a run file.
#pragma once

#include "qft/config/command_line.h"
#include "qft/config/run_config.h"

namespace qft::config {

/// Whether `qft train` trains: do_train where it is given; else true, unless do_eval or do_predict is given as true, which
/// then stands for itself, as in LLaMA-Factory.
bool trains(const RunConfig& config);

/// line.load(), and the log set up at --log-level or else log_level; in it rank 0 prints the configuration's notes.
RunConfig start(const CommandLine& line, Purpose purpose, int rank = 0, int ranks = 1);

}  // namespace qft::config
