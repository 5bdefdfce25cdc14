// How a program starts with a run file.
#pragma once

#include "qft/config/command_line.h"
#include "qft/config/run_config.h"

namespace qft::config {

/// Whether `qft train` trains: do_train where it is given; else true, unless do_eval or do_predict is given as true, which
/// then stands for itself, as in LLaMA-Factory.
bool trains(const RunConfig& config);

/// Logs the configuration's notes and takes them out: each is said once.
void say_notes(RunConfig& config);

/// line.load(), the log set up at --log-level or else log_level, and say_notes().
RunConfig start(const CommandLine& line, Purpose purpose, int rank = 0, int ranks = 1);

}  // namespace qft::config
